// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// yamlWriter writes views as YAML, with their origins as comments.
type yamlWriter struct{ out bytes.Buffer }

func (w *yamlWriter) line(indent, format string, args ...any) {
	w.out.WriteString(indent)
	fmt.Fprintf(&w.out, format, args...)
	w.out.WriteByte('\n')
}

// mapping writes the keys of a section. One that holds nothing but hidden values becomes a comment as a
// whole: a key without a value could not be read again.
func (w *yamlWriter) mapping(views []view, indent string) {
	for _, v := range views {
		key := yamlText(v.key, false)
		switch {
		case v.hidden:
			w.line(indent, "# %s: %s # %s", key, v.text, v.origin)
		case v.below == nil:
			w.scalar(v, key+": ", indent)
		case len(v.below) == 0 && v.list:
			w.line(indent, "%s: [] # %s", key, v.origin)
		case len(v.below) == 0:
			w.line(indent, "%s: {} # %s", key, v.origin)
		case v.list:
			w.list(v, key, indent)
		case onlyHidden(v.below):
			w.line(indent, "# %s:", key)
			w.mapping(v.below, indent+"  ")
		default:
			w.line(indent, "%s:", key)
			w.mapping(v.below, indent+"  ")
		}
	}
}

func onlyHidden(views []view) bool {
	for _, v := range views {
		if !v.hidden && (v.below == nil || !onlyHidden(v.below)) {
			return false
		}
	}
	return true
}

// scalar writes one value behind its key: a text of several lines as a block.
func (w *yamlWriter) scalar(v view, key, indent string) {
	if _, free := v.json.(Value); free {
		w.line(indent, "%s%s # %s", key, v.text, v.origin)
		return
	}
	if _, text := v.json.(string); !text {
		w.line(indent, "%s%s # %s", key, v.text, v.origin)
		return
	}
	if !isBlock(v.text) {
		w.line(indent, "%s%s # %s", key, yamlText(v.text, v.words), v.origin)
		return
	}
	header := "|-"
	if strings.HasSuffix(v.text, "\n") {
		header = "|"
	}
	w.line(indent, "%s%s # %s", key, header, v.origin)
	for line := range strings.SplitSeq(strings.TrimSuffix(v.text, "\n"), "\n") {
		if line == "" {
			w.line("", "")
			continue
		}
		w.line(indent+"  ", "%s", line)
	}
}

// list writes short texts on one line, and all else with a line for each entry.
func (w *yamlWriter) list(v view, key, indent string) {
	var texts []string
	width := 0
	for _, entry := range v.below {
		if entry.below == nil && !strings.Contains(entry.text, "\n") {
			text := yamlText(entry.text, false)
			if _, isText := entry.json.(string); !isText {
				text = entry.text
			}
			texts, width = append(texts, text), width+len(text)+2
		}
	}
	if len(texts) == len(v.below) && width <= 90 {
		w.line(indent, "%s: [%s] # %s", key, strings.Join(texts, ", "), v.origin)
		return
	}
	w.line(indent, "%s:", key)
	for _, entry := range v.below {
		w.entry(entry, indent+"  ")
	}
}

// entry writes one entry of a list: its first line begins with a dash.
func (w *yamlWriter) entry(v view, indent string) {
	var inner yamlWriter
	switch {
	case v.below == nil:
		inner.scalar(v, "", indent+"  ")
	case v.list: // a list in a list has no key
		text, _ := marshal(jsonOf(v)) // what was read from a file can be written
		inner.line(indent+"  ", "%s # %s", text, v.origin)
	case len(v.below) == 0 || onlyHidden(v.below):
		inner.mapping(v.below, indent+"  ")
		inner.line(indent+"  ", "{}")
	default:
		inner.mapping(v.below, indent+"  ")
	}
	dashed := false
	for line := range strings.Lines(inner.out.String()) {
		if rest := strings.TrimPrefix(line, indent+"  "); !dashed && !strings.HasPrefix(rest, "#") {
			dashed, line = true, indent+"- "+rest
		}
		w.out.WriteString(line)
	}
}

var plainText = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./@-]*\*?$`)

// yamlText is a text on one line, in quotes unless every reader takes it for the same text without them. The
// words of a closed set are never quoted: they are read as words.
func yamlText(text string, words bool) string {
	if words || whole(text) || plainText.MatchString(text) && !switchLike.MatchString(text) && !strings.EqualFold(text, "null") {
		return text
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(c) && !isOddBlank(c):
			b.WriteRune(c)
		case c > 0xffff:
			fmt.Fprintf(&b, `\U%08X`, c)
		default:
			fmt.Fprintf(&b, `\u%04X`, c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// isBlock reports whether a text of several lines can stand as a block, just as it is.
func isBlock(text string) bool {
	return strings.Contains(text, "\n") && !strings.ContainsAny(text[:1], " \n\t") && !strings.HasSuffix(text, "\n\n") &&
		!strings.Contains(text, " \n") &&
		!strings.ContainsFunc(text, func(c rune) bool { return c != '\n' && c != '\t' && (!unicode.IsPrint(c) || isOddBlank(c)) })
}
