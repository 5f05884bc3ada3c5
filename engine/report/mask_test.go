// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asShown is a text as excerpts show it.
func asShown(text string) string {
	s := &source{File: File{Text: []byte(text), Shown: open}}
	var lines []string
	for n := 1; ; n++ {
		raw, ok := s.line(n)
		if !ok {
			return strings.Join(lines, "\n")
		}
		var b strings.Builder
		for _, c := range visible(raw, s.masks[n-1], 0, len(raw)) {
			b.WriteString(c.text)
		}
		lines = append(lines, b.String())
	}
}

func TestMask(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"open keys", "name: a b\nbatch: 010\ntypes: [a, 'b c', \"d\"]\n", "name: a b\nbatch: 010\ntypes: [a, 'b c', \"d\"]\n"},
		{"other keys", "url: hunter2\nulr: \"hunter2\" # why\nx: 'it''s'", "url: ***\nulr: \"***\"\nx: '***'"},
		{"a variable stands for a value", "url: ${DATABASE_URL}\npw: ${A}${B}\nurl: x${A}\nk: {a: ${B}, name: c}", "url: ${DATABASE_URL}\npw: ${A}${B}\nurl: ***\nk: {a: ${B}, name: c}"},
		{"an open key with something telling", "name: postgres://a:b@c/d\nquery: select 1 where PASSWORD = 'x'\nname: my secret", "name: ***\nquery: ***\nname: ***"},
		{"flow", "d: {url: hunter2, name: a, roles: {x: hunter2}, name: [b]} # hunter2", "d: {url: ***, name: a, roles: {x: ***}, name: [b]}"},
		{"flow over lines", "d: {url:\n hunter2,\n name: a,\n hunter2\n}\nname: b", "d: {url:\n ***,\n name: a,\n ***\n}\nname: b"},
		{"an open bracket", "types: [a\nurl: hunter2,hunter2\nname: b, hunter2", "types: [a\nurl: ***,***\nname: b, ***"},
		{"quotes over lines", "url: \"host=db\n  name: hunter2\\\"\n  hunter2\"\nname: a", "url: \"***\n***\n***\"\nname: ***"},
		{"a quote that is not closed", "name: \"a\nurl: \"hunter2\"\nurl: \"host=db\n  hunter2\"\nname: b", "name: \"a\n*** \"***\nurl: \"***\n***\"\nname: ***"},
		{"an open text over lines", "query: \"SELECT a::text\n  FROM b\"\nname: a", "query: \"SELECT a::text\n  FROM b\"\nname: a"},
		{"an anchor before quotes", "url: &u \"host=db\n  name: hunter2\"\nname: &n a\nx: *n", "url: *** \"***\n***\"\nname: *** ***\nx: ***"},
		{"a block", "url: |-\n  hunter2\n\n  name: hunter2\nname: a", "url: |-\n  ***\n\n  ***\nname: a"},
		{"an open block", "c:\n  - query: | # hunter2\n      SELECT 1\n        # FROM batch\n      url: hunter2\n      x\n    url: >\n      hunter2\n    name: a", "c:\n  - query: |\n      SELECT 1\n        # FROM batch\n      ***\n      ***\n    url: >\n      ***\n    name: a"},
		{"no block", "url: |hunter2\nname: >a", "url: ***\nname: >a"},
		{"a text over lines", "url: host=db\n  hunter2\nname: a\n  b", "url: ***\n  ***\nname: a\n  ***"},
		{"lists", "types:\n- a\n- b\nurls:\n- hunter2\n-  - hunter2\n   - name: a\n     x: hunter2\n- types:\n  - c", "types:\n- a\n- b\nurls:\n- ***\n-  - ***\n   - name: a\n     x: ***\n- types:\n  - c"},
		{"no key", "hunter2\n'hunter2'\n[hunter2, {hunter2}]", "***\n'***'\n[***, {***}]"},
		{"keys that are none", "postgres://a:b@c: d\n\"hunter 2\": x\n? name\n: b", "***: ***\n\"***\": ***\n? ***\n: ***"},
		{"an address anywhere", "# postgres://alex:hunter2@db/x\nname: a, b://c", "\nname: ***"},
		{"documents", "url: hunter2\n---\nname: a\n...", "url: ***\n---\nname: a\n..."},
		{"marks", "\ufeffname: a\r\nurl: hunter2\rname: b", "name: a\nurl: ***\nname: b"},
		{"tags", "name: !!str a\nurl: !!str hunter2", "name: !!str a\nurl: *** ***"},
	} {
		if diff := cmp.Diff(c.want, asShown(c.text)); diff != "" {
			t.Errorf("%s:\n%s\n(-want +got)\n%s", c.name, c.text, diff)
		}
	}
}

// TestMaskHidesEveryWayToWriteASecret writes one in many ways, in many places.
func TestMaskHidesEveryWayToWriteASecret(t *testing.T) {
	const secret = "hunter2"
	ways := []string{
		secret, `"hunter2"`, `'hunter2'`, "&a hunter2", "|\n      hunter2", ">-\n      hunter2", "\n      hunter2", "\n      \"host=db\n      name: hunter2\"",
		"host=db password=hunter2", "postgres://app:hunter2@db/x", "postgres://app:a,hunter2@db/x", "[hunter2]", "{hunter2: x}", `"a\"hunter2"`, "'a''hunter2'",
		"{a: b, name: 'c' , x: hunter2}", "!!str hunter2", "x # hunter2", "host=db name=a hunter2", "|hunter2", "@hunter2", "`hunter2", "%hunter2", "- hunter2", "? hunter2",
		"[a, b, hunter2", "{a: hunter2", "\"hunter2", "'hunter2", ": hunter2", "${A}hunter2", "${hunter2 }", "${A:-hunter2}", "*hunter2", "a: b: hunter2",
	}
	places := []string{
		"url: %s", "database:\n  url: %s", "database: {url: %s}", "database: {schema: x, url: %s, name: y}", "consumers:\n  - url: %s", "consumers:\n  - name: a\n    url: %s\n    batch: 1",
		"ulr: %s", "\"url\": %s", "'url' : %s", "types: [a, {url: %s}]", "types: [url: %s, b]", "query: |\n  SELECT 1\nurl: %s", "name: 'a'\nurl: %s", "types:\n- a\nurl: %s", "? url\n: %s",
	}
	for _, place := range places {
		for _, way := range ways {
			text := fmt.Sprintf(place, way) + "\nname: last\n"
			if got := asShown(text); strings.Contains(got, secret) && !strings.Contains(way, "{hunter2: x}") {
				t.Errorf("shown in\n%s\nas\n%s", text, got)
			}
		}
	}
}

func TestExcerpt(t *testing.T) {
	long := "name: " + strings.Repeat("a", 120) + " 客客客 " + strings.Repeat("b", 120)
	for _, c := range []struct {
		name, line  string
		col         int
		text, marks string
	}{
		{"a word", "name: alex", 1, "name: alex", "^^^^"},
		{"a value", "name: alex, sam", 7, "name: alex, sam", "      ^^^^^^^^^"},
		{"a value with blanks", "name: a b c # d", 7, "name: a b c", "      ^^^^^"},
		{"a word of a value", "name: a b c", 9, "name: a b c", "        ^"},
		{"a value in brackets", "x: {name: a b , name: c}", 11, "x: {name: a b , name: c}", "          ^^^"},
		{"a hidden key with a blank", "poll interval: 5 s x", 1, "***: ***", "^^^"},
		{"quotes", `name: "al\"ex" # no`, 7, `name: "al\"ex"`, "      ^^^^^^^^"},
		{"a variable", "url: ${URL} x", 6, "url: ***", "     ^^^"},
		{"a variable alone", "url: ${URL}", 6, "url: ${URL}", "     ^^^^^^"},
		{"in a hidden value", "url: hunter2, name", 9, "url: ***", "     ^^^"},
		{"behind a hidden value", "x: {url: hunter2, name: ab}", 25, "x: {url: ***, name: ab}", "                    ^^"},
		{"a tab", "\tname: a", 1, "    name: a", "^^^^"},
		{"behind a tab", "\tname: a", 2, "    name: a", "    ^^^^"},
		{"wide characters", "types: [\"客户\", 客]", 15, "types: [\"客户\", 客]", "                ^^"},
		{"combining marks", "name: e\u0301e\u0301 x", 12, "name: e\u0301e\u0301 x", "         ^"},
		{"on a combining mark", "name: e\u0301", 8, "name: e\u0301", "      ^"},
		{"control characters", "name: \x1b[31mb\u202e c", 14, "name: \ufffd[31mb\ufffd c", "             ^"},
		{"behind the end", "name:  ", 9, "name:", "     ^"},
		{"an empty line", "", 1, "", "^"},
		{"a comment", "name: a # b", 9, "name: a", "       ^"},
		{"long, at the start", long, 1, long[:100] + "...", "^^^^"},
		{"long, in the middle", long, 128, "..." + strings.Repeat("a", 48) + " 客客客 " + strings.Repeat("b", 44) + "...", strings.Repeat(" ", 52) + "^^^^^^"},
		{"behind a long hidden value", "x: {url: " + strings.Repeat("h", 300) + ", name: ab}", 318, "...***, name: ab}", "              ^^"},
		{"far behind the end", "name: a", 1 << 62, "name: a", "       ^"},
		{"long, at the end", long, 251, "..." + strings.Repeat("b", 50), strings.Repeat(" ", 52) + "^"},
	} {
		s := &source{File: File{Text: []byte(c.line), Shown: open}}
		text, marks, ok := s.excerpt(1, c.col)
		if !ok {
			t.Errorf("%s: nothing is shown", c.name)
			continue
		}
		if diff := cmp.Diff([]string{c.text, c.marks}, []string{text, marks}); diff != "" {
			t.Errorf("%s: column %d of %q (-want +got)\n%s", c.name, c.col, c.line, diff)
		}
	}
	for _, place := range [][2]int{{0, 1}, {1, 0}, {2, 1}, {-1, -1}} {
		if text, _, ok := (&source{File: File{Text: []byte("a: b")}}).excerpt(place[0], place[1]); ok {
			t.Errorf("%v: got %q, want nothing", place, text)
		}
	}
}

// What is worst to read ends soon.
func TestMaskIsLinear(t *testing.T) {
	for name, part := range map[string]string{
		"brackets": "[", "quotes": "'", "variables": "${", "pairs": "a: ", "dashes": "- ", "braces": "{a: b, ", "addresses": "://@", "doubled": "''", "lines": "\n", "combining": "\u0301",
	} {
		text := strings.Repeat(part, (1<<18)/len(part))
		s := &source{File: File{Text: []byte(text), Shown: open}}
		if shown, _, ok := s.excerpt(1, 1); !ok || len([]rune(shown)) > 2*widest {
			t.Errorf("%s: got %d characters, %v", name, len(shown), ok)
		}
	}
}

// Whatever stands before it, the value of a key that may hold a secret is hidden.
func FuzzMask(f *testing.F) {
	for _, before := range []string{"", "name: \"a", "types: [a", "d: {name: a", "query: |\n  x", "- |\n x", "name: &a 'b", "{[\"", "? a\n: b", "x: >\n", "---\n- - name: 'it''s", "\\", "name: \"a\\"} {
		f.Add(before, "")
		f.Add(before, "  ")
	}
	const secret = "hUnTeR2"
	f.Fuzz(func(t *testing.T, before, indent string) {
		if strings.Trim(indent, " ") != "" || strings.Contains(before, secret) {
			return
		}
		for _, form := range []string{"%surl: hUnTeR2", "%surl:\n%s  hUnTeR2", "%surl: 'hUnTeR2'", "%surl: \"a\n%s  hUnTeR2\"", "%surl: |\n%s  hUnTeR2", "%sx: {url: hUnTeR2}", "%s- url: hUnTeR2"} {
			text := before + "\n" + strings.ReplaceAll(form, "%s", indent) + "\n"
			if got := asShown(text); strings.Contains(got, secret) {
				t.Errorf("shown in\n%q\nas\n%q", text, got)
			}
		}
	})
}
