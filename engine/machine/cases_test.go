// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/definitions"
	"example.com/bothy/engine/problem"
)

// doorCases checks cases on the small table, which is sound and has arguments.
func doorCases(t testing.TB, text string) Report {
	t.Helper()
	return Check("door", []Source{{"door.yaml", doorTable(t)}, {"door.cases.yaml", []byte(text)}}, doorVocabulary())
}

// TestCasesOfTheDoor plays every path of a table with arguments.
func TestCasesOfTheDoor(t *testing.T) {
	r := Check("testdata/door", folder(t, "testdata/door"), roundVocabulary(), doorVocabulary())
	if len(r.Problems) > 0 || r.Cases != 10 || r.Paths != 10 || len(r.Machines) != 1 {
		t.Errorf("got %d cases, %d paths, %d machines and problems\n%v\nwant 10, 10, 1 and none", r.Cases, r.Paths, len(r.Machines), r.Problems)
	}
}

// TestSeveralMachines checks tables of two machines in one folder, each against its own vocabulary.
func TestSeveralMachines(t *testing.T) {
	file, text := definitions.Round()
	casesFile, cases := definitions.RoundCases()
	sources := append(folder(t, "testdata/door"), Source{file, text}, Source{casesFile, cases})
	r := Check("folder", sources, doorVocabulary(), roundVocabulary())
	if len(r.Problems) > 0 || len(r.Machines) != 2 || r.Paths != 50 {
		t.Errorf("got %d machines, %d paths and problems\n%v\nwant 2, 50 and none", len(r.Machines), r.Paths, r.Problems)
	}
}

// TestCaseSurvives gives cases that are none. Each must end with a problem of the code.
func TestCaseSurvives(t *testing.T) {
	one := func(c string) string { return "machine: door\ncases:\n  - " + c + "\n" }
	for name, tt := range map[string]struct{ text, code string }{
		"nothing":                {"", "empty-file"},
		"a list":                 {"- name: x\n", "wrong-kind"},
		"no cases":               {"machine: door\ncases: []\n", "empty-list"},
		"cases as a mapping":     {"machine: door\ncases: {a: b}\n", "wrong-kind"},
		"a case as a word":       {one("open"), "wrong-kind"},
		"a slip in a key":        {one("{name: x, answrs: [shut], end: outside}"), "unknown-key"},
		"no name":                {one("{answers: [shut], end: outside}"), "missing-key"},
		"no end":                 {one("{name: x, answers: [shut]}"), "missing-key"},
		"a name of two lines":    {one(`{name: "x\ny", answers: [shut], end: outside}`), "bad-name"},
		"a long name":            {one("{name: " + strings.Repeat("x", maxCaseName+1) + ", answers: [shut], end: outside}"), "bad-name"},
		"an unknown answer":      {one("{name: x, answers: [shutt], end: outside}"), "unknown-answer"},
		"another step's answer":  {one("{name: x, answers: [done], end: outside}"), "unknown-answer"},
		"an unknown state":       {one("{name: x, answers: {door: shut}, end: outside}"), "unknown-state"},
		"breaks at no state":     {one("{name: x, answers: [], breaks: error at door, end: fell}"), "unknown-state"},
		"an unknown end":         {one("{name: x, answers: [shut], end: outsid}"), "unknown-end"},
		"an unknown failure":     {one("{name: x, answers: [shut], end: outside, failure: stuk}"), "unknown-failure"},
		"an unknown step":        {one("{name: x, answers: [shut], end: outside, effects: [knok]}"), "unknown-step"},
		"an unknown transaction": {one("{name: x, answers: [shut], end: outside, transaction: comit}"), "unknown-word"},
		"an unknown log":         {one("{name: x, answers: [shut], end: outside, log: loud}"), "unknown-word"},
		"answers as a word":      {one("{name: x, answers: shut, end: outside}"), "wrong-kind"},
		"effects as a word":      {one("{name: x, answers: [shut], end: outside, effects: knock}"), "wrong-kind"},
		"arguments as a word":    {one("{name: x, answers: [shut], end: outside, effects: [{knock: loud}]}"), "wrong-kind"},
		"a number as an answer":  {one("{name: x, answers: [1], end: outside}"), "wrong-kind"},
		"an alias":               {one("{name: &a x, answers: [shut], end: *a}"), "wrong-kind"},
		"another machine":        {strings.Replace(one("{name: x, answers: [shut], end: outside}"), "door", "window", 1), "wrong-machine"},
		"too many":               {"machine: door\ncases:\n" + strings.Repeat("  - {name: x, answers: [shut], end: outside}\n", maxCases+1), "too-large"},
		"over the size":          {strings.Repeat("#", maxText+1), "too-large"},
		"brackets":               {strings.Repeat("[", 20_000), "bad-yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			r := doorCases(t, tt.text)
			if !hasCode(r.Problems, tt.code) {
				t.Errorf("input %s: got problems\n%v\nwant the code %s", quote(tt.text), r.Problems, tt.code)
			}
			if tt.code != "untested-path" && hasCode(r.Problems, "untested-path") {
				t.Errorf("input %s: paths are called untested although the cases could not be played:\n%v", quote(tt.text), r.Problems)
			}
			placed(t, r.Problems)
		})
	}
}

// TestEveryPathOfTheRoundHasACase also with its own words: each case of the shipped file states all that can
// be stated, so that no change of an end goes by.
func TestEveryPathOfTheRoundHasACase(t *testing.T) {
	c, problems := parseCases(definitions.RoundCases())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, one := range c.list {
		keys := make(map[string]bool)
		for _, w := range one.wants {
			keys[w.key] = w.word.Text != none
		}
		for _, key := range []string{"end", "transaction", "next", "failure", "log"} {
			if _, ok := keys[key]; !ok {
				t.Errorf("case %q does not state %s", one.name.Text, key)
			}
		}
		if _, ok := keys["edge"]; !ok && !keys["failure"] {
			t.Errorf("case %q states neither a failure nor an edge", one.name.Text)
		}
		if !one.hasEffects {
			t.Errorf("case %q does not state its effects", one.name.Text)
		}
	}
	paths, all := roundMachine(t).Paths()
	names := roundMachine(t).CaseNames(func() Source { file, text := definitions.RoundCases(); return Source{file, text} }())
	if got := slices.Sorted(maps.Keys(names)); len(got) != len(paths) || !all {
		t.Errorf("%d of %d paths have a case", len(got), len(paths))
	}
}

// TestPathsAreThoseOfTheTruthTable compares two ways to list every path: along the rows of the table, and by
// running the machine and asking at each step that is new.
func TestPathsAreThoseOfTheTruthTable(t *testing.T) {
	m := roundMachine(t)
	paths, _ := m.Paths()
	var got []string
	for _, p := range paths {
		if p.Commit == "" {
			got = append(got, fmt.Sprintf("%s -> %s", p, p.End.Name))
		}
	}
	var want []string
	for line := range strings.Lines(truthTable(m, roundVocabulary())) {
		if path, _, ok := strings.Cut(line, ":"); ok {
			want = append(want, path)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other paths (-run +listed):\n%s", diff)
	}
}

// TestManyPaths lists no more paths than it may, and says so.
func TestManyPaths(t *testing.T) {
	v := doorVocabulary()
	v.Promises = nil
	text, _, _ := strings.Cut(manyStates(maxStates), "promises:")
	r := Check("t", []Source{{"t.yaml", []byte(text)}, {"t.cases.yaml", []byte("machine: door\ncases:\n  - {name: x, answers: [], breaks: error at s0, end: fell}\n")}}, v)
	untested := 0
	for _, p := range r.Problems {
		if p.Code == "untested-path" {
			untested++
		}
	}
	if len(r.Machines) != 1 || r.Paths < 50 || r.Paths > maxPaths+2 || untested != mostUntested+2 || r.Problems.Errors() > 0 {
		t.Errorf("got %d machines, %d paths, %d untested paths, want 1, at most %d, %d:\n%.2000v", len(r.Machines), r.Paths, untested, maxPaths, mostUntested+2, r.Problems)
	}
}

// TestDocumentShowsCasesThatHold plays the cases that docs/round.md shows.
func TestDocumentShowsCasesThatHold(t *testing.T) {
	page, err := os.ReadFile("../../docs/round.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/round.md shows no cases: the search is broken")
	}
	_, text := definitions.Round()
	r := Check("docs", []Source{{"round.yaml", text}, {"round.cases.yaml", []byte(block)}}, roundVocabulary())
	if r.Cases == 0 || r.Problems.Errors() > 0 {
		t.Errorf("docs/round.md shows cases with problems:\n%v\nin\n%s", r.Problems, block)
	}
}

// FuzzCases reads any text as cases. Whatever it is: no panic, every problem has a place, and the same text
// gives the same problems.
func FuzzCases(f *testing.F) {
	for _, dir := range append(caseFolders(f), "testdata/door") {
		for _, s := range folder(f, dir) {
			f.Add(s.Text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := doorCases(t, string(text))
		placed(t, r.Problems)
		if again := doorCases(t, string(text)); again.Problems.Error() != r.Problems.Error() {
			t.Errorf("the same text gave\n%v\nand then\n%v", r.Problems, again.Problems)
		}
		lines := 1 + strings.Count(strings.ReplaceAll(string(text), "\r", "\n"), "\n")
		for _, p := range r.Problems {
			if p.At.File == "door.cases.yaml" && p.At.Line > lines+1 {
				t.Errorf("a problem at line %d of %d: %v", p.At.Line, lines, p)
			}
			if p.Severity != problem.Error && p.Code != "untested-path" {
				t.Errorf("a warning that is none: %v", p)
			}
		}
	})
}
