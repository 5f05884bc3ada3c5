// SPDX-License-Identifier: Apache-2.0

package document

import (
	"strings"
	"testing"
)

// Every character of a text is found where its author wrote it.
func TestInside(t *testing.T) {
	for _, text := range []string{
		"title: plain text here\n",
		"title:   plain\n  that goes on\n\n  and on   \n  # a comment ends it\n",
		"title: \"double \\\"quoted\\\" é \\t \\x41\\u0042 end\"\n",
		"title: \"folds\n    here \\\n    and   \n\n    there\"\n",
		"title: 'single ''quoted'' text'\n",
		"title: 'folds\n   here\n\n\n   there'\n",
		"title: |\n  a literal\n    block\n\n  of äöü\n  lines\n",
		"title: |2-\n    indented\n  less\n",
		"title: |\n\n\n  after empty lines\n  x\n",
		"title: >\n  a folded\n  block\n\n  with\n\n\n  gaps\n    and deeper\n    lines\n\n  back\n  again\n",
		"title: >-\n\n  begins late\n  x\n",
		"title: &anchor |\n  behind an anchor\n",
		"title: &anchor \"behind\"\n",
		"title: &anchor\n  behind\n",
		"labels: [one, &two two]\ntitle: *two\n",
		"depot:\n  city: |\n    deeper\n     block\n",
		"depot: {city: plain in a flow}\n",
	} {
		for _, ends := range []string{"\n", "\r\n", "\r"} {
			checkInside(t, strings.ReplaceAll("version: 1\n"+text, "\n", ends))
		}
	}
}

// checkInside compares the characters of a value with those at their places.
func checkInside(t *testing.T, text string) {
	t.Helper()
	into, tree := mustRead(t, text)
	path, value := "title", into.Title
	if value == "" {
		path, value = "depot.city", into.Depot.City
	}
	lines := split([]byte(text))
	before := tree.At("version")
	for i, want := range []rune(value) {
		at := tree.Inside(path, i)
		folded := i > 0 && []rune(value)[i-1] == '\n' // line ends that are one in the value share a place
		if at.Line < before.Line || at.Line == before.Line && at.Col <= before.Col && !(folded && at == before) {
			t.Errorf("%q: character %d of %q is at %v, and the one before it at %v", text, i, value, at, before)
		}
		before = at
		line := []rune(lines[at.Line-1])
		var got rune
		if at.Col <= len(line) {
			got = line[at.Col-1]
		}
		if got != want && want != '\n' && want != ' ' && got != '\\' {
			t.Errorf("%q: character %d of %q is at %v, where %q stands, want %q", text, i, value, at, got, want)
		}
	}
	end := tree.Inside(path, 1<<20)
	if end.Line < before.Line {
		t.Errorf("%q: the end is at %v, before the last character at %v", text, end, before)
	}
}

// What is not in the file, or came out of a variable, is where At says.
func TestInsideFallsBack(t *testing.T) {
	text := "version: 1\ntitle: a ${NAME} b\nstops: [{city: Ulm}]\n"
	_, tree, _ := parcels.Read("parcel.yaml", []byte(text), func(string) (string, bool) { return "long name", true })
	for _, path := range []string{"title", "depot.city", "stops[0]", "stops", "none", ""} {
		if got, want := tree.Inside(path, 5), tree.At(path); got != want {
			t.Errorf("Inside(%q, 5) is %v, want %v", path, got, want)
		}
	}
	if got, want := tree.Inside("stops[0].city", -1), tree.At("stops[0].city"); got != want {
		t.Errorf("Inside with -1 is %v, want %v", got, want)
	}
}
