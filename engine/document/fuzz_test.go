// SPDX-License-Identifier: Apache-2.0

package document

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"example.com/bothy/engine/problem"
)

// FuzzRead: no text makes the reader panic, contradict itself or leave the text with a position, and every
// free value is JSON.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*/parcel.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("version: 1\ntitle: >+\n\n  a\n   b\n\n  c\ndepot: {city: \"\\x41\\\n  b\"}\nlabels: [&a 'it''s', *a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := split(text)
		inside := func(at problem.Position) {
			if at.Line < 1 || at.Col < 1 || at.Line > len(lines) || at.Col > len([]rune(lines[at.Line-1]))+1 {
				t.Fatalf("%q: the position %v is outside of the text", text, at)
			}
		}
		into, tree, problems := parcels.Read("parcel.yaml", text, nil)
		if (into == nil) != (problems.Errors() > 0) {
			t.Fatalf("%q: the value is nil %v with %d errors", text, into == nil, problems.Errors())
		}
		for _, p := range problems {
			inside(p.At)
			if p.Also.Line > 0 {
				inside(p.Also)
			}
		}
		for _, path := range tree.order {
			inside(tree.At(path))
			for _, offset := range []int{-1, 0, 1, 2, 3, 5, 8, 13, 1 << 20} {
				inside(tree.Inside(path, offset))
			}
		}
		if into == nil {
			return
		}
		for _, v := range []Value{into.Content, into.Depot.Note} {
			if len(v) > 0 && !json.Valid([]byte(v)) {
				t.Fatalf("%q: %s is no JSON", text, v)
			}
		}
		shown := parcels.Show(into, tree)
		if _, _, again := parcels.Read("parcel.yaml", shown, nil); again.Errors() > 0 && into.Key == "" {
			t.Fatalf("%q is shown as\n%s\nwhich cannot be read: %v", text, shown, again)
		}
	})
}
