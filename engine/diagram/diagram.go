// SPDX-License-Identifier: Apache-2.0

// Package diagram owns the pictures of tables: one proven machine in, text out.
//
//	*machine.Machine --> Mermaid   for pages that render it themselves
//	                 +-> DOT       for Graphviz
//	                 +-> SVG       whole: layout, colours for light and dark, words for a screen reader
//
// A picture shows every state with its step and arguments, every answer and where it leads, every end with
// what it does, and what may happen to any step. It refuses to know what a step does beyond the words that
// the vocabulary has for it, to read files, and to draw a table that was not proven: such a one may go round
// or lead nowhere.
package diagram

import (
	"fmt"
	"strings"

	"example.com/bothy/engine/machine"
)

// Format is a way to draw a table. The zero value is none.
type Format string

// The formats.
const (
	Mermaid Format = "mermaid"
	DOT     Format = "dot"
	SVG     Format = "svg"
)

// Formats are all formats, the usual one first.
func Formats() []Format { return []Format{Mermaid, DOT, SVG} }

// Draw draws a machine. An error says that there is no such format.
func Draw(m *machine.Machine, f Format) ([]byte, error) {
	switch f {
	case Mermaid:
		return []byte(mermaid(m)), nil
	case DOT:
		return []byte(dot(m)), nil
	case SVG:
		return []byte(svg(m)), nil
	default:
		return nil, fmt.Errorf("there is no format %q", f)
	}
}

// mostArgument is how many characters of an argument are drawn.
const mostArgument = 40

// arguments are the lines of a state below its step: what the table gives to it, in the order of the table.
func arguments(s machine.State) []string {
	var lines []string
	for _, a := range s.With {
		words := make([]string, len(a.Values))
		for i, v := range a.Values {
			words[i] = v.Text
		}
		lines = append(lines, cut(a.Name.Text+": "+strings.Join(words, ", ")))
	}
	return lines
}

// cut makes a text one line that is short enough to be drawn.
func cut(text string) string {
	r := []rune(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?")))
	if len(r) > mostArgument {
		return string(r[:mostArgument]) + "..."
	}
	return string(r)
}

// says are the lines of an end below its name: what becomes of the transaction and what comes next, and what
// is told about it.
func says(e machine.End) []string {
	lines := []string{fmt.Sprintf("%s, %s", e.Transaction, e.Next)}
	var told []string
	if e.Failure != "" {
		told = append(told, "failure "+e.Failure)
	}
	if e.Edge == machine.Unchanged {
		told = append(told, "edge unchanged")
	}
	if e.Log != nil {
		told = append(told, "log "+string(e.Log.Level))
	}
	if len(told) > 0 {
		lines = append(lines, strings.Join(told, ", "))
	}
	return lines
}

// look is the colour of an end. It never says more than the words in the box do.
func look(e machine.End) string {
	switch {
	case e.Transaction == machine.Commit:
		return "commit"
	case e.Failure != "":
		return "failure"
	default:
		return "rollback"
	}
}

// Prefixes keep a state, an end and a word of a format apart whatever the table calls them.
const (
	statePrefix = "s_"
	endPrefix   = "e_"
)

// node is how a target is named in Mermaid and DOT. Names of a table have only a-z, 0-9 and _.
func node(t machine.Target) string {
	if t.End {
		return endPrefix + t.Name
	}
	return statePrefix + t.Name
}
