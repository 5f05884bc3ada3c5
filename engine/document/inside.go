// SPDX-License-Identifier: Apache-2.0

package document

import (
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/problem"
)

// Inside is the place of one character of a scalar: the one with the number offset, counted from 0 in
// characters of the value as the program sees it. An offset behind the last character gives the place
// behind it. A value that is not in the file, that came out of a variable, or whose writing cannot be
// followed that far is at its beginning.
func (t *Tree) Inside(path string, offset int) problem.Position {
	m, ok := t.marks[path]
	if !ok || m.variable || m.node == nil || m.node.Kind != yaml.ScalarNode || offset < 0 {
		return t.At(path)
	}
	want := []rune(m.node.Value)
	s := &writing{lines: t.lines(), line: m.node.Line - 1, col: m.node.Column - 1, want: want, offset: min(offset, len(want))}
	if s.find(m.node) && s.line < t.end.line {
		return problem.Position{File: t.file, Line: s.line + 1, Col: s.col + 1}
	}
	return t.At(path)
}

// writing follows the source of a scalar, character by character, beside the value that the parser gave.
// A character that differs ends it: what is reported was really seen there.
type writing struct {
	lines     []string
	current   []rune // the line, once it is looked at
	loaded    int    // the number of that line, from 1
	line, col int    // from 0
	want      []rune
	at        int // how many characters of want were seen
	offset    int
}

// find moves to the place of the character with the number offset.
func (w *writing) find(n *yaml.Node) bool {
	w.properties(n)
	switch {
	case n.Style&yaml.LiteralStyle != 0:
		return w.block(false)
	case n.Style&yaml.FoldedStyle != 0:
		return w.block(true)
	case n.Style&yaml.DoubleQuotedStyle != 0:
		return w.next() == '"' && w.flow('"')
	case n.Style&yaml.SingleQuotedStyle != 0:
		return w.next() == '\'' && w.flow('\'')
	default:
		return w.flow(0)
	}
}

// properties skips an anchor before a scalar.
func (w *writing) properties(n *yaml.Node) {
	if n.Anchor == "" || w.peek() != '&' {
		return
	}
	w.col += 1 + len([]rune(n.Anchor))
	for w.line < len(w.lines) && w.blank() {
		w.line, w.col = w.line+1, 0
	}
}

// blank skips blanks, and reports whether nothing else is left on the line.
func (w *writing) blank() bool {
	for w.peek() == ' ' || w.peek() == '\t' {
		w.col++
	}
	return w.peek() == 0 || w.peek() == '#'
}

// runes is the line as characters. Most lines are asked for more than once.
func (w *writing) runes() []rune {
	if w.loaded != w.line+1 {
		w.current, w.loaded = nil, w.line+1
		if w.line < len(w.lines) {
			w.current = []rune(w.lines[w.line])
		}
	}
	return w.current
}

// peek is the character here, or 0 at the end of a line.
func (w *writing) peek() rune {
	if line := w.runes(); w.col < len(line) {
		return line[w.col]
	}
	return 0
}

func (w *writing) next() rune {
	c := w.peek()
	w.col++
	return c
}

// see compares one character of the value, and is false when it is another one.
func (w *writing) see(c rune) bool {
	if w.at >= len(w.want) || w.want[w.at] != c {
		return false
	}
	w.at++
	return true
}

// flow follows a plain or a quoted scalar. Line ends in it are folded: one is a blank, more are one fewer.
func (w *writing) flow(quote rune) bool {
	for w.at < w.offset {
		c := w.peek()
		switch {
		case c == 0 || (c == ' ' || c == '\t') && w.restIsBlank():
			if !w.fold() {
				return false
			}
		case quote == '"' && c == '\\':
			if !w.escape() {
				return false
			}
		case quote == '\'' && c == '\'':
			if w.col++; w.next() != '\'' || !w.see('\'') {
				return false
			}
		default:
			if w.col++; !w.see(c) {
				return false
			}
		}
	}
	return true
}

func (w *writing) restIsBlank() bool {
	return strings.TrimSpace(string(w.runes()[w.col:])) == ""
}

// fold goes on to the next line with text.
func (w *writing) fold() bool {
	ends := w.lineEnds()
	if w.line >= len(w.lines) {
		return false
	}
	if ends == 1 {
		return w.see(' ')
	}
	for range ends - 1 {
		if !w.see('\n') {
			return false
		}
		if w.at > w.offset {
			break
		}
	}
	return true
}

// lineEnds moves to the next line with text, and counts the line ends on the way.
func (w *writing) lineEnds() int {
	ends := 0
	for {
		w.line, w.col = w.line+1, 0
		ends++
		for w.peek() == ' ' || w.peek() == '\t' {
			w.col++
		}
		if w.peek() != 0 || w.line >= len(w.lines) {
			return ends
		}
	}
}

// escape follows a backslash in double quotes. What it stands for is taken from the value.
func (w *writing) escape() bool {
	w.col++
	c := w.next()
	switch c {
	case 0: // it hides the line end
		w.lineEnds()
		return w.line < len(w.lines)
	case 'x':
		w.col += 2
	case 'u':
		w.col += 4
	case 'U':
		w.col += 8
	}
	if unicode.IsSpace(c) && c != ' ' && c != '\t' {
		return false
	}
	w.at++
	return true
}

// block follows a literal or a folded scalar, whose text begins on the line after the indicator.
func (w *writing) block(folded bool) bool {
	w.line++
	indent := w.indent()
	last := len(w.want)
	for last > 0 && w.want[last-1] == '\n' {
		last--
	}
	for w.line < len(w.lines) {
		w.col = min(indent, len(w.runes()))
		for w.at < w.offset && w.peek() != 0 {
			if !w.see(w.next()) {
				return false
			}
		}
		if w.at == w.offset || w.at >= last { // what follows is line ends alone
			return true
		}
		lines, glue := 1, "\n"
		if folded {
			lines, glue = w.folded(indent)
		}
		for _, c := range glue {
			if !w.see(c) {
				return false
			}
			if w.at > w.offset {
				return true // the line end itself
			}
		}
		w.line += lines
	}
	return false
}

// folded is what the end of a line of a folded block stands for, and how many lines on the text goes on: a
// blank, or one line end for each empty line. Lines that are indented more keep their line ends.
func (w *writing) folded(indent int) (lines int, glue string) {
	text := func(i int) string {
		line := []rune(w.lines[i])
		return string(line[min(indent, len(line)):])
	}
	here := text(w.line)
	if here == "" {
		return 1, "\n"
	}
	next := w.line + 1
	for next < len(w.lines) && text(next) == "" {
		next++
	}
	lines = next - w.line
	deeper := strings.HasPrefix(here, " ") || strings.HasPrefix(here, "\t")
	switch {
	case next == len(w.lines):
		return lines, ""
	case deeper || strings.HasPrefix(text(next), " ") || strings.HasPrefix(text(next), "\t"):
		return lines, strings.Repeat("\n", lines)
	case lines == 1:
		return 1, " "
	default:
		return lines, strings.Repeat("\n", lines-1)
	}
}

// indent is how far a block is indented: as far as its first line with text, less the blanks that its value
// begins with.
func (w *writing) indent() int {
	for i := w.line; i < len(w.lines); i++ {
		text := strings.TrimLeft(w.lines[i], " ")
		if text == "" {
			continue
		}
		own := 0
		for _, c := range w.want {
			if c == ' ' {
				own++
			} else if c != '\n' {
				break
			}
		}
		return max(len(w.lines[i])-len(text)-own, 0)
	}
	return 0
}
