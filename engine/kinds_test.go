// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/bothy/engine"
	"example.com/bothy/engine/problem"
)

// printed is a code as the first line of a problem ends with it, behind a position.
var printed = regexp.MustCompile(`(?m)^[^\s:]+:[0-9]+:[0-9]+: .* \[([a-z]+(?:-[a-z]+)*)\]\r?$`)

// TestEveryPrintedCodeHasAKind reads every golden file of the house: a code that a user can meet is one that
// engine validate --explain and the reference page know, with the severity that it was printed with.
func TestEveryPrintedCodeHasAKind(t *testing.T) {
	t.Parallel()
	kinds := map[string]problem.Kind{}
	for _, k := range engine.Kinds() {
		kinds[k.Code] = k
	}
	found := map[string]bool{}
	everyFile(t, func(name string, text []byte) {
		if !strings.Contains(name, "/testdata/") || strings.HasPrefix(name, "engine/report/") {
			return // that room has made-up problems
		}
		for _, m := range printed.FindAllSubmatch(text, -1) {
			code := string(m[1])
			found[code] = true
			if _, known := kinds[code]; !known && code != "bad-title" { // of a grammar that tests made up
				t.Errorf("%s prints the code %s, which engine.Kinds does not have", name, code)
			}
		}
	})
	if len(found) < 60 {
		t.Errorf("found only %d codes: the search is broken", len(found))
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	kinds := engine.Kinds()
	shape := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for _, k := range kinds {
		if !shape.MatchString(k.Code) || k.Severity != problem.Error && k.Severity != problem.Warning {
			t.Errorf("%+v: the code or the severity is none", k)
		}
		if !strings.HasSuffix(k.Means, ".") || len(k.Means) < 20 || strings.Contains(k.Means, "\n") {
			t.Errorf("%s means %q, want a sentence", k.Code, k.Means)
		}
	}
	if !slices.IsSortedFunc(kinds, func(a, b problem.Kind) int { return strings.Compare(a.Code, b.Code) }) {
		t.Error("the kinds are not sorted by code")
	}
	codes := map[string]bool{}
	for _, k := range kinds {
		if codes[k.Code] {
			t.Errorf("%s is there twice", k.Code)
		}
		codes[k.Code] = true
	}
}
