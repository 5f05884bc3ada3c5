// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// trimQuery reads the SQL of a rule as far as that goes without a database: what is text, what is a
// comment, where it ends. The engine puts the rule in parentheses, so it may not close them, may not leave
// a quote or a comment open, and is one statement. What it gives back has no comment, no semicolon and no
// blank at its end. Whether the SQL is right only the server can say.
func trimQuery(text string) (query, why, fix string) {
	query, _, why, fix = readQuery(text)
	return query, why, fix
}

// queryPlace is where in the SQL of a rule its trouble is, in characters, counted from 0; -1 for the whole.
func queryPlace(text string) int {
	_, at, _, _ := readQuery(text)
	if at < 0 {
		return -1
	}
	return utf8.RuneCountInString(text[:at])
}

// readQuery is trimQuery with the byte that the trouble begins at, or -1.
func readQuery(text string) (query string, at int, why, fix string) {
	s := scanner{text: text, union: -1, parameter: -1, unmatched: -1, after: -1}
	s.scan()
	query = strings.TrimSpace(text[:s.end])
	switch {
	case s.open != "":
		return "", s.opened, "where " + s.open + " is never closed", "close it"
	case s.unmatched >= 0:
		return "", s.unmatched, "where a ) closes nothing", "remove it, or open it before"
	case len(s.depth) > 0:
		return "", s.depth[len(s.depth)-1], "where a ( is never closed", "close it"
	case s.after >= 0:
		return "", s.after, "where a second statement begins", "keep one SELECT, without a semicolon in it"
	case query == "":
		return "", -1, "which holds no SQL", ""
	case s.parameter >= 0:
		return "", s.parameter, "which names the parameter " + s.name + ", and a rule is given none", "write the value itself"
	case !s.begins("select", "with", "values", "table"):
		return "", s.start, "which is not a SELECT", "begin it with SELECT or WITH"
	case !s.batch:
		return "", -1, "which does not mention the relation batch, so it cannot tell which events are new", "write ... FROM batch b ... and select b.seq"
	default:
		return query, -1, "", ""
	}
}

// scanner knows as much of SQL as it takes to tell words from quotes and comments.
type scanner struct {
	text      string
	pos       int
	end       int    // after the last character that counts
	first     string // the first word, in lower case
	start     int    // where it begins
	depth     []int  // where each open ( stands
	open      string // what was opened and never closed
	opened    int    // where
	batch     bool   // the relation batch is mentioned
	parameter int    // where the first one is, or -1
	name      string // of that, such as $1
	semicolon bool
	after     int   // where what follows a semicolon begins, or -1
	unmatched int   // where the first ) is that closes nothing, or -1
	unions    []int // where each UNION ALL outside of parentheses begins and ends
	union     int   // where the UNION before this word begins, or -1
}

// repeats reports whether a query joins the same SELECT to itself by UNION ALL, so that it gives each
// target twice.
func repeats(query string) bool {
	s := scanner{text: query, union: -1, parameter: -1, unmatched: -1, after: -1}
	s.scan()
	seen := map[string]bool{}
	from := 0
	for i := 0; i <= len(s.unions); i += 2 {
		to := len(query)
		if i < len(s.unions) {
			to = s.unions[i]
		}
		arm := bare(strings.Join(strings.Fields(query[from:to]), " "))
		if seen[arm] {
			return true
		}
		seen[arm] = true
		if i < len(s.unions) {
			from = s.unions[i+1]
		}
	}
	return false
}

// bare is a SELECT without the parentheses around it.
func bare(arm string) string {
	for strings.HasPrefix(arm, "(") && strings.HasSuffix(arm, ")") {
		inner := strings.TrimSpace(arm[1 : len(arm)-1])
		s := scanner{text: inner, union: -1, parameter: -1, unmatched: -1, after: -1}
		if s.scan(); s.unmatched >= 0 || len(s.depth) > 0 || s.open != "" {
			break // those of two parts
		}
		arm = inner
	}
	return arm
}

func (s *scanner) begins(words ...string) bool {
	return slices.Contains(words, s.first)
}

// scan reads token by token until the end or the first thing that stays open.
func (s *scanner) scan() {
	for s.pos < len(s.text) && s.open == "" {
		start, c := s.pos, s.text[s.pos]
		s.opened = start
		rest := s.text[s.pos:]
		switch {
		case strings.IndexByte(" \t\r\n\f\v", c) >= 0:
			s.pos++
			continue
		case strings.HasPrefix(rest, "--"):
			s.past("\n", true, "")
			continue
		case strings.HasPrefix(rest, "/*"):
			s.comment()
			continue
		case c == ';':
			s.pos++
			s.semicolon = true
			continue
		case c == '\'':
			s.quote('\'', false)
		case c == '"':
			s.quote('"', false)
			s.batch = s.batch || s.text[start:s.pos] == `"batch"`
		case c == '$':
			s.dollar()
		case isWord(c):
			s.word()
		default:
			s.pos++
			s.parenthesis(c, start)
		}
		if s.semicolon && s.after < 0 {
			s.after = start
		}
		s.end = s.pos
	}
}

func (s *scanner) parenthesis(c byte, at int) {
	switch {
	case c == '(':
		s.depth = append(s.depth, at)
	case c == ')' && len(s.depth) > 0:
		s.depth = s.depth[:len(s.depth)-1]
	case c == ')' && s.unmatched < 0:
		s.unmatched = at
	}
}

// past moves behind the next mark, or to the end, which what may not be when something stays open there.
func (s *scanner) past(mark string, endIsFine bool, what string) {
	if i := strings.Index(s.text[s.pos:], mark); i >= 0 {
		s.pos += i + len(mark)
		return
	}
	s.pos = len(s.text)
	if !endIsFine {
		s.open = what
	}
}

// comment skips a block comment. They nest in PostgreSQL.
func (s *scanner) comment() {
	depth := 0
	for s.pos < len(s.text) {
		switch rest := s.text[s.pos:]; {
		case strings.HasPrefix(rest, "/*"):
			depth++
			s.pos += 2
		case strings.HasPrefix(rest, "*/"):
			depth--
			s.pos += 2
			if depth == 0 {
				return
			}
		default:
			s.pos++
		}
	}
	s.open = "a comment /*"
}

// quote skips a quoted text. A doubled quote stands for itself, and after an E so does one behind a
// backslash.
func (s *scanner) quote(mark byte, escapes bool) {
	for s.pos++; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; {
		case c == '\\' && escapes:
			s.pos++
		case c == mark && s.pos+1 < len(s.text) && s.text[s.pos+1] == mark:
			s.pos++
		case c == mark:
			s.pos++
			return
		}
	}
	s.pos = len(s.text)
	s.open = "the quote " + string(mark)
}

// dollar skips $$ text $$ and $tag$ text $tag$, and notices a parameter.
func (s *scanner) dollar() {
	start := s.pos
	s.pos++
	for s.pos < len(s.text) && isWord(s.text[s.pos]) {
		s.pos++
	}
	tag := s.text[start:s.pos]
	switch {
	case len(tag) > 1 && isDigit(tag[1]):
		if s.parameter < 0 {
			s.parameter, s.name = start, tag
		}
	case s.pos < len(s.text) && s.text[s.pos] == '$':
		s.pos++
		s.past(tag+"$", false, "the quote "+tag+"$")
	}
}

// word reads an identifier or a keyword. A $ inside belongs to it.
func (s *scanner) word() {
	start := s.pos
	for s.pos < len(s.text) && (isWord(s.text[s.pos]) || s.text[s.pos] == '$') {
		s.pos++
	}
	word := strings.ToLower(s.text[start:s.pos])
	if s.first == "" {
		s.first, s.start = word, start
	}
	s.batch = s.batch || word == "batch"
	if word == "all" && s.union >= 0 && len(s.depth) == 0 {
		s.unions = append(s.unions, s.union, s.pos)
	}
	s.union = -1
	if word == "union" {
		s.union = start
	}
	if word == "e" && s.pos < len(s.text) && s.text[s.pos] == '\'' {
		s.quote('\'', true)
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isWord includes every byte above ASCII, as PostgreSQL does.
func isWord(c byte) bool {
	return c == '_' || isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
