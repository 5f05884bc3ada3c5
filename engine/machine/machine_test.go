// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/definitions"
	"example.com/bothy/engine/problem"
)

var update = flag.Bool("update", false, "write the golden files of this package anew")

// golden compares with a file of testdata, or writes it with -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v\nwrite it with: go test ./engine/machine -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what came out (-want +got):\n%s\nwhen the new one is right: go test ./engine/machine -update", path, diff)
	}
}

// doorVocabulary is a small machine for the cases: one step of each shape.
func doorVocabulary() Vocabulary {
	return Vocabulary{
		Machine: "door",
		Steps: map[string]StepKind{
			"knock": {Does: "knocks at the door", Answers: []Answer{{"open", "somebody opens"}, {"shut", "nobody is in"}}},
			"enter": {Does: "goes in", Without: "one would stay outside", Answers: []Answer{{Name: "done"}}},
			"paint": {Answers: []Answer{{Name: "done"}}, With: map[string]ArgumentKind{
				"colour": {Required: true, OneOf: []string{"green", "white"}},
				"sides":  {List: true},
			}},
		},
		Failures: []string{"stuck", "error"},
		Promises: []Promise{{Transaction: Commit, NeverPasses: []string{"knock.shut"}, Why: "one would run into a shut door"}},
	}
}

// roundMachine is the shipped table, ready to run.
func roundMachine(t testing.TB) *Machine {
	t.Helper()
	file, text := definitions.Round()
	m, problems := Load(file, text, roundVocabulary())
	if len(problems) > 0 {
		t.Fatalf("the shipped table has problems:\n%v", problems)
	}
	return m
}

// folder reads the files *.yaml of a folder, named as they stand in it.
func folder(t testing.TB, dir string) []Source {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var sources []Source
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, Source{File: filepath.Base(name), Text: text})
	}
	return sources
}

// judge is what is said about the files of a folder: one table is read for the machine that it most likely
// is, several files are checked together.
func judge(sources []Source) problem.List {
	if len(sources) == 1 && sources[0].File == "table.yaml" {
		vocabulary := doorVocabulary()
		if strings.Contains(string(sources[0].Text), "machine: round") {
			vocabulary = roundVocabulary()
		}
		_, problems := Load("table.yaml", sources[0].Text, vocabulary)
		return problems
	}
	return Check("folder", sources, doorVocabulary(), roundVocabulary()).Problems
}

// caseFolders are the folders of testdata/problems, each named after a code that it shows.
func caseFolders(t testing.TB) []string {
	t.Helper()
	folders, err := filepath.Glob("testdata/problems/*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	return folders
}

// TestProblems compares everything that is said about files with mistakes. Each folder is one class of
// mistake.
func TestProblems(t *testing.T) {
	for _, dir := range caseFolders(t) {
		code := filepath.Base(dir)
		t.Run(code, func(t *testing.T) {
			problems := judge(folder(t, dir))
			if len(problems) == 0 {
				t.Fatal("got no problem, want at least one")
			}
			placed(t, problems)
			golden(t, filepath.Join(dir, "want.txt"), problems.Error()+"\n")
			if !hasCode(problems, code) {
				t.Errorf("no problem has the code %s:\n%v", code, problems)
			}
		})
	}
}

// TestKinds holds the list of codes to what is reported: every code of the source has a kind and a folder of
// testdata/problems, and no kind stands for nothing.
func TestKinds(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	reported := make(map[string]bool)
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") || name == "kinds.go" {
			continue
		}
		for _, word := range regexp.MustCompile(`"([a-z]+(?:-[a-z]+)+|cycle)"`).FindAllStringSubmatch(string(text), -1) {
			reported[word[1]] = true
		}
	}
	var listed []string
	for _, k := range Kinds() {
		listed = append(listed, k.Code)
		if !strings.HasSuffix(k.Means, ".") || (k.Severity != problem.Error && k.Severity != problem.Warning) {
			t.Errorf("kind %s: severity %d, means %q; want a severity and a sentence", k.Code, k.Severity, k.Means)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(reported)), listed); diff != "" {
		t.Errorf("the codes of the source are not those of Kinds, sorted (-source +Kinds):\n%s", diff)
	}
	severity := make(map[string]problem.Severity)
	for _, k := range Kinds() {
		severity[k.Code] = k.Severity
	}
	shown := map[string]bool{"bad-vocabulary": true} // a bug of the program, which no file can show
	for _, dir := range caseFolders(t) {
		shown[filepath.Base(dir)] = true
		for _, p := range judge(folder(t, dir)) {
			if severity[p.Code] != p.Severity {
				t.Errorf("%s: severity %d is reported, and its kind says %d", p.Code, p.Severity, severity[p.Code])
			}
		}
	}
	if diff := cmp.Diff(listed, slices.Sorted(maps.Keys(shown))); diff != "" {
		t.Errorf("the folders of testdata/problems are not those of Kinds (-Kinds +folders):\n%s", diff)
	}
}

// TestSoundTable accepts a table that uses all of the grammar.
func TestSoundTable(t *testing.T) {
	text, err := os.ReadFile("testdata/door/door.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m, problems := Load("testdata/door/door.yaml", text, doorVocabulary())
	if len(problems) > 0 {
		t.Fatalf("got problems, want none:\n%v", problems)
	}
	var names []string
	for _, e := range m.Ends() {
		names = append(names, e.Name)
	}
	if diff := cmp.Diff([]string{"inside", "outside", "left", "fell"}, names); m.Name() != "door" || diff != "" {
		t.Errorf("machine %q with other ends (-want +got):\n%s", m.Name(), diff)
	}
}

// TestBadVocabulary refuses a program that declares what no table can handle.
func TestBadVocabulary(t *testing.T) {
	for name, kind := range map[string]StepKind{
		"no answer":          {},
		"an answer twice":    {Answers: []Answer{{Name: "done"}, {Name: "done"}}},
		"cancelled as own":   {Answers: []Answer{{Name: "done"}, {Name: "cancelled"}}},
		"an error as answer": {Answers: []Answer{{Name: "done"}, {Name: "error"}}},
	} {
		v := doorVocabulary()
		v.Steps["enter"] = kind
		if m, problems := Load("door.yaml", doorTable(t), v); m != nil || !hasCode(problems, "bad-vocabulary") {
			t.Errorf("%s: got machine %v and problems\n%v\nwant no machine and bad-vocabulary", name, m != nil, problems)
		}
	}
}
