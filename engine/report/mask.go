// SPDX-License-Identifier: Apache-2.0

package report

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// lineMask says what of a line is hidden.
type lineMask struct {
	hidden []bool // by column, from 0: values that may be secret; nil hides nothing
	cut    int    // the column where a comment begins; -1 without one
	plain  []span // the keys and values without quotes, in their order
}

// span is a part of a line: the column, from 0, where it begins, and the one behind it.
type span struct{ from, to int }

// masker finds what must not be shown of each line of a text, from its start. It does not parse YAML: it also has to work
// on a text that is none. It reads keys, quotes, brackets and blocks as YAML does, keeps in mind to which key a text
// belongs, and where it is in doubt, the text is hidden.
type masker struct {
	patterns
	shown func(string) bool

	levels []level // the keys that enclose the place by their indentation
	flow   []flow  // the open brackets
	quote  rune    // the quote that is open over the end of a line, or 0
	block  bool    // a block scalar (| or >) is open
	key    string  // the key that the next value belongs to
	begun  bool    // a text without quotes has begun, and may go on in the next line
	lost   bool    // a quote was not closed where it should have been: from here on nothing is sure

	runes []rune
	out   lineMask
}

// level is a key and how far its line is indented.
type level struct {
	indent int
	key    string
}

// flow is an open bracket.
type flow struct {
	outer   string // the key that the bracket belongs to
	mapping bool   // { or [
	keyed   bool   // a key was read in it
}

// line masks the next line.
func (m *masker) line(runes []rune) lineMask {
	m.runes, m.out = runes, lineMask{cut: -1}
	at := skip(runes, 0)
	switch {
	case m.quote != 0:
		m.lost = m.lost || m.keyed.MatchString(string(runes))
		at = m.quoted(0)
	case string(runes) == "---" || string(runes) == "...": // a new document
		m.levels, m.flow, m.block = nil, nil, false
		return m.out
	case m.block && (at == len(runes) || at > m.top().indent):
		if m.opensKey.MatchString(string(runes)) {
			m.key = "" // most likely no text, but a key that is indented too far
		}
		m.value(at, len(runes))
		m.addresses()
		return m.out
	case len(m.flow) == 0 && at < len(runes):
		m.enclose(at, runes[at] == '-')
	}
	m.block = m.block && at == len(runes)
	for at < len(runes) {
		at = m.token(at)
	}
	m.addresses()
	return m.out
}

// skip is the first place from i on that is no blank.
func skip(runes []rune, i int) int {
	for i < len(runes) && (runes[i] == ' ' || runes[i] == '\t') {
		i++
	}
	return i
}

// top is the innermost enclosing key.
func (m *masker) top() level {
	if len(m.levels) == 0 {
		return level{indent: -1}
	}
	return m.levels[len(m.levels)-1]
}

// enclose finds the key that a line at this indentation stands under. An entry of a list may be indented as far
// as the key of the list.
func (m *masker) enclose(indent int, entry bool) {
	for len(m.levels) > 0 && (m.top().indent > indent || m.top().indent == indent && !entry) {
		m.levels = m.levels[:len(m.levels)-1]
	}
	m.key = m.top().key
}

// token reads one token and gives the place behind it and the blanks that follow.
func (m *masker) token(at int) int {
	switch c := m.runes[at]; {
	case c == '#' && (at == 0 || isBlank(m.runes[at-1])):
		m.out.cut = at
		return len(m.runes)
	case len(m.flow) == 0 && (c == '-' || c == '?') && m.ends(at+1):
		next := skip(m.runes, at+1)
		m.begun = false
		if next < len(m.runes) {
			m.enclose(next, false)
		}
		return next
	case c == '[' || c == '{':
		m.flow = append(m.flow, flow{outer: m.key, mapping: c == '{'})
		m.begun = false
		return skip(m.runes, at+1)
	case len(m.flow) > 0 && (c == ']' || c == '}' || c == ','):
		return m.bracket(at)
	case c == '&' || c == '!': // an anchor or a tag, or a secret that begins so
		end := at
		for !m.ends(end) {
			end++
		}
		m.value(at, end)
		return skip(m.runes, end)
	case c == '"' || c == '\'':
		m.quote = c
		return m.quoted(at + 1)
	case len(m.flow) == 0 && (c == '|' || c == '>') && m.header.MatchString(string(m.runes[at:])):
		m.block = true
		if comment := strings.IndexRune(string(m.runes[at:]), '#'); comment > 0 { // an ASCII header: bytes are characters
			m.out.cut = at + comment
		}
		return len(m.runes)
	default:
		return m.plain(at)
	}
}

// ends reports whether a blank or the end of the line stands at a place.
func (m *masker) ends(at int) bool { return at >= len(m.runes) || isBlank(m.runes[at]) }

func isBlank(c rune) bool { return c == ' ' || c == '\t' }

// bracket closes one, or goes on to its next entry.
func (m *masker) bracket(at int) int {
	last := &m.flow[len(m.flow)-1]
	m.begun = false
	switch {
	case m.runes[at] != ',':
		m.key = last.outer
		m.flow = m.flow[:len(m.flow)-1]
	case last.mapping || last.keyed:
		m.key = "" // of a text without a key of its own nothing is known
	default:
		m.key = last.outer
	}
	return skip(m.runes, at+1)
}

// quoted reads on to the quote that closes. What follows a colon tells whether it was a key.
func (m *masker) quoted(from int) int {
	end := from
	for end < len(m.runes) {
		doubled := m.quote == '\'' && end+1 < len(m.runes) && m.runes[end+1] == '\'' // it stands for itself
		if m.runes[end] == m.quote && !doubled {
			break
		}
		if m.quote == '"' && m.runes[end] == '\\' || m.runes[end] == m.quote {
			end++
		}
		end++
	}
	if end >= len(m.runes) {
		m.value(from, len(m.runes))
		return len(m.runes)
	}
	m.quote = 0
	next := skip(m.runes, end+1)
	if next < len(m.runes) && m.runes[next] == ':' && (len(m.flow) > 0 || m.ends(next+1)) {
		return m.named(from, end, next)
	}
	m.value(from, end)
	return next
}

// plain reads a text without quotes.
func (m *masker) plain(at int) int {
	end := at
	for end < len(m.runes) {
		c := m.runes[end]
		if c == ':' && (m.ends(end+1) || len(m.flow) > 0 && strings.ContainsRune(",[]{}", m.runes[end+1])) {
			m.out.plain = append(m.out.plain, span{at, end})
			return m.named(at, end, end)
		}
		if to := variableEnd(m.runes, end); to > 0 { // the brackets of a variable are none of YAML's to its author
			end = to
			continue
		}
		if c == '#' && end > at && isBlank(m.runes[end-1]) || len(m.flow) > 0 && strings.ContainsRune(",[]{}", c) {
			break
		}
		end++
	}
	m.value(at, end)
	if m.begun && at == skip(m.runes, 0) {
		m.hide(at, at+length(strings.TrimRight(string(m.runes[at:end]), " \t"))) // perhaps no part of the text, but a key that lacks its colon
	}
	m.begun = true
	m.out.plain = append(m.out.plain, span{at, end})
	return max(skip(m.runes, end), at+1)
}

// named takes a text as a key. The colon stands at colon.
func (m *masker) named(from, end, colon int) int {
	key := strings.TrimSpace(string(m.runes[from:end]))
	if !m.word.MatchString(key) {
		m.hide(from, end)
		key = ""
	}
	m.key, m.begun = key, false
	if len(m.flow) > 0 {
		m.flow[len(m.flow)-1].keyed = true
	} else {
		m.enclose(from, false)
		m.levels = append(m.levels, level{from, key})
		m.key = key
	}
	return skip(m.runes, colon+1)
}

// patterns are what texts are told by. They are compiled when the first text is masked: a run without a problem does not
// pay for them.
type patterns struct {
	onlyVariables *regexp.Regexp // a value that is nothing but variables
	word          *regexp.Regexp // a key that can be shown
	keyed         *regexp.Regexp // a key stands somewhere in the line
	opensKey      *regexp.Regexp // a key opens the line
	header        *regexp.Regexp // of a block scalar
	telling       *regexp.Regexp // a text that looks like a secret
	address       *regexp.Regexp // a user and a password may stand in it
}

var compiled = sync.OnceValue(func() patterns {
	return patterns{
		onlyVariables: regexp.MustCompile(`^(\$\{[A-Za-z_][A-Za-z0-9_]*\})+$`),
		word:          regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.-]{0,62}|<<)$`),
		keyed:         regexp.MustCompile(`[A-Za-z0-9_.-]["']?\s*:(\s|$)`),
		opensKey:      regexp.MustCompile(`^[ \t-]*["']?[A-Za-z0-9_.-]+["']?\s*:(\s|$)`),
		header:        regexp.MustCompile(`^[|>][-+0-9]{0,2}[ \t]*(#.*)?$`),
		telling:       regexp.MustCompile(`(?i)://|passw|secret`),
		address:       regexp.MustCompile(`://.*@`),
	}
})

// value hides a text, unless its key can hold no secret and it does not look like one. A variable alone
// stands for a value and is none.
func (m *masker) value(from, to int) {
	text := strings.TrimRight(string(m.runes[from:min(to, len(m.runes))]), " \t")
	if text == "" || m.onlyVariables.MatchString(text) || !m.lost && m.shown(m.key) && !m.telling.MatchString(text) {
		return
	}
	m.hide(from, from+length(text))
}

func (m *masker) hide(from, to int) {
	if from >= to {
		return
	}
	if m.out.hidden == nil {
		m.out.hidden = make([]bool, len(m.runes))
	}
	for i := from; i < to; i++ {
		m.out.hidden[i] = true
	}
}

// addresses hides what stands between :// and the last @ of the line, whatever it was read as.
func (m *masker) addresses() {
	line := string(m.runes)
	if found := m.address.FindStringIndex(line); found != nil {
		m.hide(length(line[:found[0]])+3, length(line[:found[1]])-1)
	}
}

// hides reports whether a character is hidden.
func (l lineMask) hides(i int) bool { return i < len(l.hidden) && l.hidden[i] }

// plainEnd is the column behind the key or the value without quotes that begins at a column, or 0.
func (l lineMask) plainEnd(from int) int {
	i, found := slices.BinarySearchFunc(l.plain, from, func(s span, from int) int { return s.from - from })
	if !found {
		return 0
	}
	return l.plain[i].to
}
