// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/problem"
)

// characters refuses what no YAML file should hold, wherever it stands: bytes that are no UTF-8, control
// characters, and a byte-order mark that is not the first character.
func (r *reader) characters(text []byte) bool {
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		r.report(problem.Position{File: r.file, Line: 1, Col: 1}, "bad-encoding", "the file is in UTF-16", "save it as UTF-8")
		return false
	}
	before := len(r.problems)
	line, col := 1, 1
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRune(text[i:])
		at := problem.Position{File: r.file, Line: line, Col: col}
		switch {
		case c == utf8.RuneError && size == 1:
			r.report(at, "bad-encoding", fmt.Sprintf("the byte 0x%02X is not UTF-8", text[i]), "save the file as UTF-8")
			return false // what follows cannot be told from noise
		case c == '\ufeff':
			r.report(at, "byte-order-mark", "a byte-order mark (U+FEFF) stands in the middle of the file",
				"remove it; two files may have been joined here")
		case c == '\u0085' || c == '\u2028' || c == '\u2029':
			r.reportBlank(c, line, col) // YAML would begin a new line here, and an editor does not
		case c != '\t' && c != '\n' && c != '\r' && unicode.IsControl(c):
			r.report(at, "control-character", fmt.Sprintf("the control character U+%04X stands here", c), "remove it")
			return false
		}
		i += size
		if c == '\n' || (c == '\r' && !bytes.HasPrefix(text[i:], []byte("\n"))) {
			line, col = line+1, 1
		} else {
			col++
		}
	}
	return len(r.problems) == before
}

// blanks are the characters that look like a space, or like nothing, and are neither to YAML.
var blanks = map[rune]string{
	'\u00a0': "non-breaking space",
	'\u0085': "next-line character",
	'\u1680': "ogham space",
	'\u200b': "zero-width space",
	'\u2028': "line separator",
	'\u2029': "paragraph separator",
	'\u202f': "narrow non-breaking space",
	'\u205f': "mathematical space",
	'\u2060': "word joiner",
	'\u3000': "wide space",
}

func blankName(c rune) string {
	if name := blanks[c]; name != "" {
		return name
	}
	if c >= '\u2000' && c <= '\u200a' {
		return "typographic space"
	}
	return ""
}

func isOddBlank(c rune) bool { return blankName(c) != "" }

func (r *reader) reportBlank(c rune, line, col int) {
	r.report(problem.Position{File: r.file, Line: line, Col: col}, "odd-blank",
		fmt.Sprintf("a %s (U+%04X) stands here, which looks like a blank and is none to YAML", blankName(c), c),
		"replace it with an ordinary space, or put the text in double quotes if it is meant")
}

// oddBlanks reports such characters in keys and unquoted values: there a person meant an ordinary space.
// In quotes and in blocks they are text. It is false when one of them hides a key, so that the structure of
// the file is not the one that its author sees.
func (r *reader) oddBlanks(text []byte, top *yaml.Node) bool {
	lines := split(text)
	sound := true
	var visit func(n *yaml.Node, isKey bool)
	visit = func(n *yaml.Node, isKey bool) {
		if n.Kind == yaml.ScalarNode && n.Style == 0 && strings.ContainsFunc(n.Value, isOddBlank) {
			r.odd[n] = true
			sound = sound && !isKey && !strings.Contains(n.Value, ":")
			if c, line, col := findBlank(lines, n.Line, n.Column); c != 0 {
				r.reportBlank(c, line, col)
			}
		}
		for i, child := range n.Content {
			visit(child, n.Kind == yaml.MappingNode && i%2 == 0)
		}
	}
	visit(top, false)
	return sound
}

// findBlank looks from a place on for the next odd blank.
func findBlank(lines []string, line, col int) (c rune, atLine, atCol int) {
	for i := line - 1; i >= 0 && i < len(lines); i++ {
		for j, c := range []rune(lines[i]) {
			if (i > line-1 || j >= col-1) && isOddBlank(c) {
				return c, i + 1, j + 1
			}
		}
	}
	return 0, 0, 0
}

// split cuts a text into lines at LF, CRLF and a lone CR.
func split(text []byte) []string {
	plain := strings.ReplaceAll(string(text), "\r\n", "\n")
	return strings.Split(strings.ReplaceAll(plain, "\r", "\n"), "\n")
}

var yamlError = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)

// broken reports a text that is no YAML. The parser says where it gave up, which is often far from the
// mistake; so the place is the first line that cannot be read together with all lines before it.
func (r *reader) broken(text []byte, err error) {
	before := len(r.problems)
	if text, err = r.aliases(text, err); err == nil || len(r.problems)-before == maxAliases {
		return
	}
	lines := split(text)
	message := err.Error()
	line := 1
	if m := yamlError.FindStringSubmatch(message); m != nil {
		message = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
	}
	if !strings.Contains(message, "exceeded max depth") {
		line = firstBroken(lines, line)
	}
	line = min(max(line, 1), len(lines))
	if r.lookAlike(lines, line) {
		return
	}
	what, fix, marks := sayYAML(message)
	col := culprit(lines[line-1], marks)
	if strings.Contains(message, badEscape) {
		line, col = escape(lines, line, col)
	}
	r.report(problem.Position{File: r.file, Line: line, Col: col}, "bad-yaml", what, fix)
}

// lookAlike reports a tab or an odd blank as the reason when one stands at the broken line or beside it.
func (r *reader) lookAlike(lines []string, broken int) bool {
	for _, line := range []int{broken, broken - 1, broken + 1} {
		if line < 1 || line > len(lines) {
			continue
		}
		content := strings.TrimLeft(lines[line-1], " \t")
		indent := lines[line-1][:len(lines[line-1])-len(content)]
		if tab := strings.IndexByte(indent, '\t'); tab >= 0 && content != "" && content[0] != '#' {
			r.report(problem.Position{File: r.file, Line: line, Col: tab + 1}, "tab-indentation",
				"the line is indented with a tab, and YAML takes only spaces there", "replace each tab at the start of the line with spaces")
			return true
		}
		before, _, _ := strings.Cut(lines[line-1], " #")
		for i, c := range []rune(before) {
			if isOddBlank(c) {
				r.reportBlank(c, line, i+1)
				return true
			}
		}
	}
	return false
}

// sayings turn the parser's words into a reader's. The first that matches counts.
var sayings = []struct{ message, what, fix, marks string }{
	{"cannot start any token", "a value begins with a character that YAML keeps for itself", "put the text in quotes", "@`%|>"},
	{"mapping values are not allowed", `": " cannot stand here: a value has begun already`, `check the indentation, and put a text that holds ": " in quotes`, ""},
	{"did not find expected '-' indicator", "the line is no entry of the list it stands in", "check the indentation, and begin an entry with -", ""},
	{"did not find expected alphabetic or numeric", "a text that begins with * or & is an alias or an anchor to YAML", `put it in quotes, such as "*"`, "*&"},
	{"did not find expected key", "the line is no key of the mapping it stands in", "check the indentation and the quotes", ""},
	{"could not find expected ':'", "a key has no colon after it", "write the key, a colon and a blank", ""},
	{"unexpected end of stream", "a quote opens here and never closes", "close it", `"'`},
	{"unexpected document indicator", "a quote opens here and is not closed before the document ends", "close it", `"'`},
	{"expected ',' or ']'", "a [ opens here, and what follows is neither a comma nor ]", "close it, and put texts with [ ] { } or , in quotes", "["},
	{"expected ',' or '}'", "a { opens here, and what follows is neither a comma nor }", `close it, and put texts with [ ] { } or , in quotes, such as "${NAME}"`, "{"},
	{badEscape, `in double quotes a \ gives the character after it another meaning, and this one takes none`, `write \\ for a backslash, or put the text in single quotes`, ""},
	{"exceeded max depth", "the brackets nest too deep", "check that this is the right file", ""},
	{"value contains itself", "an anchor holds an alias to itself", "remove the alias", "*"},
}

const badEscape = "unknown escape character"

// escape is the place of the first backslash that stands before a character that takes no other meaning in double
// quotes, from a line on. Without one it is the place that it was given.
func escape(lines []string, line, col int) (atLine, atCol int) {
	for i := line - 1; i < len(lines); i++ {
		runes := []rune(lines[i])
		quoted := i > line-1
		for j := 0; j < len(runes); j++ {
			switch {
			case runes[j] == '"':
				quoted = !quoted
			case runes[j] == '\\' && quoted && j+1 < len(runes):
				if !strings.ContainsRune("0abt\tnvfre \"'/\\N_LPxuU", runes[j+1]) {
					return i + 1, j + 1
				}
				j++
			}
		}
	}
	return line, col
}

var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)

func sayYAML(message string) (what, fix, marks string) {
	if unknownAnchor.MatchString(message) {
		return "this is an alias to YAML, and no anchor of its name stands before it", "put it in quotes if it is a text", "*"
	}
	for _, s := range sayings {
		if strings.Contains(message, s.message) {
			return s.what, s.fix, s.marks
		}
	}
	return "the file is not YAML: " + message, "check the line and the one before it", ""
}

// culprit is the column of the first of the marks that begins a word of the line, or of its first
// character.
func culprit(line, marks string) int {
	before, first := ' ', 0
	for i, c := range []rune(line) {
		if strings.ContainsRune(marks, c) && strings.ContainsRune(" \t[{,(", before) {
			return i + 1
		}
		if first == 0 && c != ' ' && c != '\t' {
			first = i + 1
		}
		before = c
	}
	return max(first, 1)
}
