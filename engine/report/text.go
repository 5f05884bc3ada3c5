// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strconv"
	"strings"

	"example.com/bothy/engine/problem"
)

// The colours of a terminal, by what they are for.
const (
	bold   = "1"
	red    = "1;31"
	yellow = "1;33"
	green  = "32"
	blue   = "34"
)

// paint colours a text.
func (d *desk) paint(colour, text string) string {
	if !d.Colour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// text writes every problem in the words of problem.Problem, with the lines that it is about, and the summary.
func (d *desk) text() []byte {
	var b strings.Builder
	for _, p := range d.Problems {
		d.problem(&b, p)
	}
	if summary := Summary(d.Problems); summary != "" {
		b.WriteString(summary + "\n")
	}
	return []byte(b.String())
}

func (d *desk) problem(b *strings.Builder, p problem.Problem) {
	colour := red
	word := ""
	if p.Severity == problem.Warning {
		colour = yellow
		word = d.paint(colour, "warning:") + " "
	}
	fmt.Fprintf(b, "%s: %s%s %s\n", d.paint(bold, plain(p.At.String(), false)), word, plain(p.What, true), d.paint(colour, "["+plain(p.Code, false)+"]"))
	d.excerpt(b, p.At, colour)
	if p.Also.Line > 0 {
		fmt.Fprintf(b, "    see: %s\n", d.paint(bold, plain(p.Also.String(), false)))
		d.excerpt(b, p.Also, blue)
	}
	if p.Fix != "" {
		fmt.Fprintf(b, "    %s %s\n", d.paint(green, "fix:"), plain(p.Fix, true))
	}
}

// excerpt writes the line of a place and marks the word.
func (d *desk) excerpt(b *strings.Builder, at problem.Position, colour string) {
	text, marks, ok := d.source(at.File).excerpt(at.Line, at.Col)
	if !ok || text == "" {
		return
	}
	number := strconv.Itoa(at.Line)
	gutter := d.paint(blue, "|")
	fmt.Fprintf(b, "    %s %s %s\n", d.paint(blue, number), gutter, text)
	indent := marks[:strings.IndexByte(marks, '^')]
	fmt.Fprintf(b, "    %s %s %s%s\n", strings.Repeat(" ", len(number)), gutter, indent, d.paint(colour, marks[len(indent):]))
}
