// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"unicode"
)

// widest is how many columns of a terminal an excerpt takes.
const widest = 100

// cell is a character as it is shown.
type cell struct {
	text   string
	width  int
	source int // the column, from 0, that it stands for
}

// excerpt is a line as it may be shown, and the marks under the word at a place. It is false when the
// file has no such line.
func (s *source) excerpt(line, col int) (text, marks string, ok bool) {
	raw, ok := s.line(line)
	if !ok || col < 1 {
		return "", "", false
	}
	col = min(col, len(raw)+1)
	low, high := max(col-1-2*widest, 0), min(col+2*widest, len(raw))
	cells := visible(raw, s.masks[line-1], low, high)
	from, to := marked(cells, col-1, s.end(line, col)-1)
	cells, from, to, before, after := window(cells, from, to)
	if low > 0 {
		before = "..."
	}
	if high < len(raw) {
		after = "..."
	}
	var b, m strings.Builder
	b.WriteString(before)
	m.WriteString(strings.Repeat(" ", len(before)))
	for i, c := range cells {
		b.WriteString(c.text)
		switch {
		case i < from:
			m.WriteString(strings.Repeat(" ", c.width))
		case i < to:
			m.WriteString(strings.Repeat("^", c.width))
		}
	}
	if from == to { // behind the end of the line
		m.WriteString("^")
	}
	return strings.TrimRight(b.String()+after, " "), m.String(), true
}

// visible turns the part of a line between two columns, from 0, into what may be shown of it.
func visible(runes []rune, mask lineMask, from, to int) []cell {
	var cells []cell
	for i := from; i < to && (mask.cut < 0 || i < mask.cut); i++ {
		switch {
		case !mask.hides(i):
			cells = append(cells, cellOf(runes[i], i))
		case i == from || !mask.hides(i-1):
			cells = append(cells, cell{"*", 1, i}, cell{"*", 1, i}, cell{"*", 1, i})
		}
	}
	for len(cells) > 0 && cells[len(cells)-1].text == " " {
		cells = cells[:len(cells)-1]
	}
	return cells
}

// marked are the cells of the columns from and to, which is the one behind the last. The stars of a hidden value
// belong together. A place behind the end of the line has no cell.
func marked(cells []cell, from, to int) (first, behind int) {
	first = -1
	for i, c := range cells {
		if c.source <= from && c.width > 0 && (first < 0 || c.source != cells[first].source) {
			first = i
		}
	}
	if first < 0 || from > cells[len(cells)-1].source && cells[len(cells)-1].text != "*" {
		return len(cells), len(cells)
	}
	behind = first + 1
	for behind < len(cells) && (cells[behind].source < to || cells[behind].source == cells[first].source) {
		behind++
	}
	return first, behind
}

// window cuts a long line around the marks. What is left out shows as three dots.
func window(cells []cell, from, to int) (cut []cell, first, behind int, before, after string) {
	total := 0
	for _, c := range cells {
		total += max(c.width, 1) // without a width of its own it still takes part in the length
	}
	if total <= widest {
		return cells, from, to, "", ""
	}
	start := from
	for room := widest / 2; start > 0 && room > max(cells[start-1].width, 1); {
		start--
		room -= max(cells[start].width, 1)
	}
	end := start
	for room := widest; end < len(cells) && room >= max(cells[end].width, 1); end++ {
		room -= max(cells[end].width, 1)
	}
	if start > 0 {
		before = "..."
	}
	if end < len(cells) {
		after = "..."
	}
	return cells[start:end], from - start, min(to, end) - start, before, after
}

// cellOf is how a character is shown. One that would move or hide others (a control character, a change of
// the writing direction) shows as a question mark in a box.
func cellOf(c rune, at int) cell {
	switch {
	case c == '\t':
		return cell{"    ", 4, at}
	case unicode.In(c, unicode.Mn, unicode.Me):
		return cell{string(c), 0, at}
	case c != ' ' && !unicode.IsPrint(c) && !unicode.Is(unicode.Zs, c):
		return cell{"\ufffd", 1, at}
	case isWide(c):
		return cell{string(c), 2, at}
	default:
		return cell{string(c), 1, at}
	}
}

// wide are the ranges of characters that take two columns of a terminal.
var wide = [][2]rune{
	{0x1100, 0x115f},
	{0x231a, 0x231b},
	{0x23e9, 0x23ec},
	{0x25fd, 0x25fe},
	{0x2614, 0x2615},
	{0x2648, 0x2653},
	{0x26aa, 0x26ab},
	{0x26bd, 0x26be},
	{0x26c4, 0x26c5},
	{0x2705, 0x2705},
	{0x270a, 0x270b},
	{0x2753, 0x2755},
	{0x2795, 0x2797},
	{0x2e80, 0x303e},
	{0x3041, 0x33ff},
	{0x3400, 0x4dbf},
	{0x4e00, 0x9fff},
	{0xa000, 0xa4cf},
	{0xa960, 0xa97c},
	{0xac00, 0xd7a3},
	{0xf900, 0xfaff},
	{0xfe30, 0xfe6f},
	{0xff01, 0xff60},
	{0xffe0, 0xffe6},
	{0x1f300, 0x1f64f},
	{0x1f680, 0x1f6ff},
	{0x1f900, 0x1f9ff},
	{0x1fa70, 0x1faff},
	{0x20000, 0x3fffd},
}

func isWide(c rune) bool {
	for _, r := range wide {
		if c >= r[0] && c <= r[1] {
			return true
		}
	}
	return false
}

// plain is a text without characters that would reach out of their place on a terminal. Line breaks stay when
// lines is set.
func plain(text string, lines bool) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n' && lines, c == ' ', unicode.IsPrint(c), unicode.Is(unicode.Zs, c):
			return c
		case c == '\n', c == '\t', c == '\r':
			return ' '
		default:
			return '\ufffd'
		}
	}, text)
}
