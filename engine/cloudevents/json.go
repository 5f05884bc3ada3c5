// SPDX-License-Identifier: Apache-2.0

package cloudevents

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// fault is what is wrong at an offset of the event's text.
type fault struct {
	at              int // 0 stands for the beginning of the value that is being read
	also            int // a second offset that belongs to it, or 0
	code, what, fix string
	cut             bool // the text ends too early
}

func bad(at int, code, what, fix string) *fault {
	return &fault{at: at, code: code, what: what, fix: fix}
}

// scanner walks over the text of one event. encoding/json is not used: it replaces half surrogates and
// broken UTF-8 silently, keeps the last of two equal names and knows no line.
type scanner struct {
	text []byte
	pos  int
}

func (s *scanner) blanks() {
	for s.pos < len(s.text) && isBlank(s.text[s.pos]) {
		s.pos++
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// peek is the next byte that is not blank, or 0 at the end; a zero byte in the text is no JSON anyway.
func (s *scanner) peek() byte {
	s.blanks()
	if s.pos == len(s.text) {
		return 0
	}
	return s.text[s.pos]
}

// take moves over the byte want, if it is the next one.
func (s *scanner) take(want byte) bool {
	if s.peek() != want || s.pos == len(s.text) {
		return false
	}
	s.pos++
	return true
}

// unexpected says what stands at the position in place of what JSON wants there.
func (s *scanner) unexpected(want string) *fault {
	s.blanks()
	if s.pos == len(s.text) {
		f := bad(len(bytes.TrimRight(s.text, " \t\r\n")), "bad-json", "the event ends here, before "+want, "write each event on one line, or all of them in one JSON array")
		f.cut = true
		return f
	}
	return bad(s.pos, "bad-json", found(s.text[s.pos:])+" stands in place of "+want, "write the event as JSON")
}

// found names what a text begins with, so that a blank or an invisible character can be seen.
func found(text []byte) string {
	r, size := utf8.DecodeRune(text)
	switch {
	case r == utf8.RuneError && size <= 1:
		return fmt.Sprintf("the byte 0x%02X", text[0])
	case r == '"':
		return `'"'`
	case r == '\uFEFF' || r == '\u00A0' || !unicode.IsPrint(r):
		return fmt.Sprintf("U+%04X", r)
	case unicode.IsLetter(r):
		word := text
		if end := bytes.IndexFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && r != '_' }); end > 0 {
			word = text[:end]
		}
		return quote(word)
	default:
		return quote(text[:size])
	}
}

// quote shows the author's text, cut where it grows long.
func quote(text []byte) string {
	const most = 40
	cut := ""
	for i, n := 0, 0; i < len(text); n++ {
		if n == most {
			text, cut = text[:i], "..."
			break
		}
		_, size := utf8.DecodeRune(text[i:])
		i += size
	}
	return strconv.Quote(string(text) + cut)
}

// value walks over one value of any kind.
func (s *scanner) value(depth int) *fault {
	if depth > maxDepth {
		return bad(s.pos, "too-deep", fmt.Sprintf("the value is nested more than %d levels deep", maxDepth), "flatten the data")
	}
	switch c := s.peek(); {
	case c == '"':
		_, f := s.str()
		return f
	case c == '{':
		return s.object(depth)
	case c == '[':
		return s.array(depth)
	case c == '-' || isDigit(c):
		return s.number()
	default:
		if slices.ContainsFunc([]string{"true", "false", "null"}, s.word) {
			return nil
		}
		return s.unexpected("a value")
	}
}

// word takes a literal that does not run on into another letter.
func (s *scanner) word(word string) bool {
	rest := s.text[s.pos:]
	if len(rest) < len(word) || string(rest[:len(word)]) != word {
		return false
	}
	if len(rest) > len(word) && (rest[len(word)] == '_' || isDigit(rest[len(word)]) || unicode.IsLetter(rune(rest[len(word)]))) {
		return false
	}
	s.pos += len(word)
	return true
}

func (s *scanner) object(depth int) *fault {
	s.pos++
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.unexpected("a name in quotes")
		}
		if _, f := s.str(); f != nil {
			return f
		}
		if !s.take(':') {
			return s.unexpected(`":" after the name`)
		}
		if f := s.value(depth + 1); f != nil {
			return f
		}
		if s.peek() == '}' {
			s.pos++
			return nil
		}
		if !s.take(',') {
			return s.unexpected(`"," or "}" after the value`)
		}
	}
}

func (s *scanner) array(depth int) *fault {
	s.pos++
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		if f := s.value(depth + 1); f != nil {
			return f
		}
		if s.peek() == ']' {
			s.pos++
			return nil
		}
		if !s.take(',') {
			return s.unexpected(`"," or "]" after the value`)
		}
	}
}

// str walks over a string and returns its text between the quotes, escapes as written.
func (s *scanner) str() ([]byte, *fault) {
	start := s.pos
	s.pos++
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return s.text[start+1 : s.pos-1], nil
		case c == '\\':
			if f := s.escape(); f != nil {
				return nil, f
			}
		case c == '\n' || c == '\r':
			return nil, bad(start, "bad-json", "the string that begins here has no closing quote on its line", `close it, and write a line break inside it as \n`)
		case c == 0:
			return nil, bad(s.pos, "nul-escape", "the byte 0x00 stands in a string, and the log cannot store it", "leave it out, or send the bytes as data_base64")
		case c < ' ':
			return nil, bad(s.pos, "bad-json", fmt.Sprintf("U+%04X stands in a string as it is", c), fmt.Sprintf(`write it as \u%04x`, c))
		case c < utf8.RuneSelf:
			s.pos++
		default:
			r, size := utf8.DecodeRune(s.text[s.pos:])
			if r == utf8.RuneError && size == 1 {
				return nil, bad(s.pos, "bad-utf8", fmt.Sprintf("the byte 0x%02X is no UTF-8", c), "write the file in UTF-8")
			}
			s.pos += size
		}
	}
	return nil, bad(start, "bad-json", "the string that begins here has no closing quote on its line", "close it")
}

// escape walks over one escape, or over the two that make a surrogate pair.
func (s *scanner) escape() *fault {
	rest := s.text[s.pos:]
	if len(rest) > 1 && strings.IndexByte(`"\/bfnrt`, rest[1]) >= 0 {
		s.pos += 2
		return nil
	}
	r, ok := hex4(rest)
	switch {
	case !ok:
		return bad(s.pos, "bad-json", quote(rest[:min(len(rest), 2)])+" begins no escape that JSON knows", `write a backslash as \\, any other character as \u and four hexadecimal digits`)
	case r == 0:
		return bad(s.pos, "nul-escape", `\u0000 is the code point zero, which the log cannot store`, "leave the character out, or send the bytes as data_base64")
	case !utf16.IsSurrogate(r):
		s.pos += 6
		return nil
	}
	low, ok := hex4(rest[6:])
	if !ok || utf16.DecodeRune(r, low) == unicode.ReplacementChar {
		return bad(s.pos, "lone-surrogate", string(rest[:6])+" is one half of a surrogate pair, without the other", "write both halves, or the character itself")
	}
	s.pos += 12
	return nil
}

// hex4 reads a backslash, a u and four hexadecimal digits at the beginning of text.
func hex4(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range text[2:6] {
		switch {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// unquote turns the text of a string that str accepted into the string it means.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	var b strings.Builder
	b.Grow(len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			b.WriteByte(raw[i])
			i++
			continue
		}
		if raw[i+1] != 'u' {
			const letters, means = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
			b.WriteByte(means[strings.IndexByte(letters, raw[i+1])])
			i += 2
			continue
		}
		r, _ := hex4(raw[i:])
		i += 6
		if utf16.IsSurrogate(r) {
			low, _ := hex4(raw[i:])
			r = utf16.DecodeRune(r, low)
			i += 6
		}
		b.WriteRune(r)
	}
	return b.String()
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// number walks over a number, as RFC 8259 writes it.
func (s *scanner) number() *fault {
	start := s.pos
	digits := func() int {
		from := s.pos
		for s.pos < len(s.text) && isDigit(s.text[s.pos]) {
			s.pos++
		}
		return s.pos - from
	}
	at := func(set string) bool {
		if s.pos < len(s.text) && strings.IndexByte(set, s.text[s.pos]) >= 0 {
			s.pos++
			return true
		}
		return false
	}
	at("-")
	first := s.pos
	whole := digits()
	ok := whole == 1 || (whole > 1 && s.text[first] != '0')
	fraction, exponent := 0, 0
	if at(".") {
		fraction = digits()
		ok = ok && fraction > 0
	}
	if at("eE") {
		from := s.pos
		at("+-")
		ok = digits() > 0 && ok
		var err error
		if exponent, err = strconv.Atoi(string(s.text[from:s.pos])); err != nil && ok {
			return tooWide(start)
		}
	}
	if !ok || (s.pos < len(s.text) && (s.text[s.pos] == '.' || unicode.IsLetter(rune(s.text[s.pos])))) {
		return bad(start, "bad-json", s.token(start)+" is no number of JSON", "write digits without leading zeros, at most one point with digits around it")
	}
	// the limits of PostgreSQL's numeric: 131072 digits before the point, 16383 after it
	if whole+exponent > 131072 || fraction-exponent > 16383 {
		return tooWide(start)
	}
	return nil
}

func tooWide(at int) *fault {
	return bad(at, "bad-number", "the number has more digits than the log can store", "send it as a string")
}

// token quotes the text from start up to where a value can end.
func (s *scanner) token(start int) string {
	end := start
	for end < len(s.text) && !isBlank(s.text[end]) && strings.IndexByte(`,:]}"`, s.text[end]) < 0 {
		end++
	}
	return quote(s.text[start:end])
}
