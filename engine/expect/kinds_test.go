// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/problem"
)

// Every code of the source has a kind and a case, and every kind has its code.
func TestKinds(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	place := regexp.MustCompile(`(?:Refuse\(.+?, "|Code: "|\[)([a-z]+(?:-[a-z]+)+)["\]]`)
	shared := []string{"empty-value"} // a code of the reader
	var found []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "kinds.go" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range place.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(shared, match[1]) {
				found = append(found, match[1])
			}
		}
	}
	slices.Sort(found)
	var kinds []string
	for _, k := range Kinds() {
		kinds = append(kinds, k.Code)
		if !strings.HasSuffix(k.Means, ".") || k.Severity != problem.Error {
			t.Errorf("kind %+v: want a sentence and a severity", k)
		}
		if _, err := os.Stat(filepath.Join("testdata", k.Code, Name)); err != nil {
			t.Errorf("the code %s has no case: %v", k.Code, err)
		}
	}
	if diff := cmp.Diff(slices.Compact(found), kinds); diff != "" {
		t.Errorf("codes of the source, and kinds (-source +kinds):\n%s", diff)
	}
}

// The declaration is one that the reader understands.
func TestDeclarationHasNoFlaws(t *testing.T) {
	if flaws := grammar(nil).Flaws(); len(flaws) > 0 {
		t.Errorf("flaws of the declaration:\n%s", strings.Join(flaws, "\n"))
	}
}
