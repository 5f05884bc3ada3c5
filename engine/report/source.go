// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// source is a file with its lines, and with what of them may be shown. Both are found when they are first
// asked for, and no further than the line asked for: most runs have no problem, and a huge file most often has its
// problem at the start.
type source struct {
	File
	masker *masker
	rest   []byte // what is still to be cut into lines; nil behind the last one
	lines  [][]rune
	masks  []lineMask
}

// load cuts the text into lines, up to line n.
func (s *source) load(n int) {
	if s.masker == nil {
		shown := s.Shown
		if shown == nil {
			shown = func(string) bool { return false }
		}
		s.masker = &masker{patterns: compiled(), shown: shown}
		s.rest = bytes.TrimPrefix(s.Text, []byte("\ufeff"))
	}
	for s.rest != nil && len(s.lines) < n {
		line := []rune(s.cut())
		s.lines = append(s.lines, line)
		s.masks = append(s.masks, s.masker.line(line))
	}
}

// cut takes the next line from the rest. LF, CRLF and a lone CR end one, as in YAML.
func (s *source) cut() string {
	line, rest := s.rest, []byte(nil)
	if at := bytes.IndexAny(line, "\r\n"); at >= 0 {
		line, rest = s.rest[:at], s.rest[at+1:]
		if s.rest[at] == '\r' && len(rest) > 0 && rest[0] == '\n' {
			rest = rest[1:]
		}
	}
	s.rest = rest
	return strings.ToValidUTF8(string(line), "\ufffd")
}

// line is the text of a line, from 1. It is false for one that the file does not have.
func (s *source) line(n int) ([]rune, bool) {
	s.load(n)
	if n < 1 || n > len(s.lines) {
		return nil, false
	}
	return s.lines[n-1], true
}

// longestWord bounds how far the end of a word is looked for: many problems may be in one endless line.
const longestWord = 1000

// end is the column behind the text that begins at a place, or 0 where that cannot be told: behind the whole of a key or
// a value of YAML, and else behind one word. It is always behind the place.
func (s *source) end(line, col int) int {
	runes, ok := s.line(line)
	if !ok || col < 1 || col > len(runes) {
		return 0
	}
	if to := s.masks[line-1].plainEnd(col - 1); to > 0 {
		for runes[to-1] == ' ' || runes[to-1] == '\t' {
			to--
		}
		return to + 1
	}
	return col + extent(runes[col-1:min(len(runes), col+longestWord)])
}

// extent is the length of the first word: a text in quotes, a variable, a bracket, or characters up to
// something that ends a word in YAML or in SQL.
func extent(runes []rune) int {
	switch quote := runes[0]; quote {
	case '"', '\'':
		for i := 1; i < len(runes); i++ {
			if runes[i] == '\\' && quote == '"' {
				i++
			} else if runes[i] == quote {
				return i + 1
			}
		}
		return len([]rune(strings.TrimRight(string(runes), " \t")))
	}
	n := 0
	for n < len(runes) && !endsWord(runes, n) {
		if to := variableEnd(runes, n); to > 0 {
			n = to
			continue
		}
		n++
	}
	return min(max(n, 1), len(runes))
}

// endsWord reports whether a word ends before the character at i.
func endsWord(runes []rune, i int) bool {
	switch runes[i] {
	case ' ', '\t', ',', '[', ']', '{', '}', '(', ')':
		return true
	case ':':
		return i+1 == len(runes) || runes[i+1] == ' ' || runes[i+1] == '\t'
	default:
		return false
	}
}

// variableEnd is the place behind the } of a variable ${NAME} that begins at i, or 0 where none begins.
func variableEnd(runes []rune, i int) int {
	if runes[i] != '$' || i+1 >= len(runes) || runes[i+1] != '{' {
		return 0
	}
	for j := i + 2; j < len(runes); j++ {
		switch c := runes[j]; {
		case c == '}' && j > i+2:
			return j + 1
		case c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z'):
			return 0
		}
	}
	return 0
}

// length counts characters.
func length(text string) int { return utf8.RuneCountInString(text) }
