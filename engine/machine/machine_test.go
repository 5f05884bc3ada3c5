// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/definitions"
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

// roundVocabulary is what the program behind round.yaml declares: the same as in the room that binds it.
func roundVocabulary() Vocabulary {
	return Vocabulary{
		Machine: "round",
		Steps: map[string]StepKind{
			"lock_cursor":       {Answers: []string{"held", "taken", "missing"}},
			"read_events":       {Answers: []string{"some", "none", "vanished", "ahead", "unfinalized"}},
			"plan_round":        {Answers: []string{"contiguous", "expired", "hole"}},
			"decide_recipients": {Answers: []string{"decided"}},
			"insert_jobs":       {Answers: []string{"inserted"}},
			"advance_cursor":    {Answers: []string{"advanced"}},
		},
		Failures: []string{"consumer_gap", "consumer_ahead", "error"},
		Promises: roundPromises(),
	}
}

func roundPromises() []Promise {
	writes := []string{"insert_jobs", "advance_cursor"}
	return []Promise{
		{
			Transaction: Commit, InOrder: true,
			Passes: []string{"lock_cursor.held", "read_events.some", "plan_round", "decide_recipients", "insert_jobs", "advance_cursor"},
		},
		{Transaction: Commit, NeverPasses: []string{"plan_round.hole"}},
		{End: "processed", Transaction: Commit, Passes: []string{"plan_round.contiguous"}, NeverPassesState: []string{"decide_rest"}, Next: AgainWhenFull, Edge: Settle},
		{End: "lost", Transaction: Commit, Passes: []string{"plan_round.expired"}, PassesState: []string{"decide_rest"}, Next: AgainWhenFull, Edge: Settle, Log: LevelError},
		{End: "idle", Passes: []string{"lock_cursor.held", "read_events.none"}, Next: Wait, Edge: Settle},
		{End: "locked", Passes: []string{"lock_cursor.taken"}, Next: Wait, Edge: Unchanged},
		{
			End: "gap", Passes: []string{"lock_cursor.held", "read_events"}, Next: Wait, Failure: "consumer_gap",
			NeverPasses: append([]string{"read_events.none", "read_events.ahead", "read_events.unfinalized"}, writes...),
		},
		{End: "ahead", Passes: []string{"read_events.ahead"}, NeverPasses: writes, Next: Wait, Failure: "consumer_ahead"},
		{End: "unfinalized", Passes: []string{"read_events.unfinalized"}, NeverPasses: writes, Next: Wait, Edge: Unchanged},
		{End: "stopped", Next: Stop, Edge: Unchanged},
		{
			End: "failed", Next: Wait, Failure: "error",
			NeverPasses: []string{"read_events.vanished", "read_events.ahead", "read_events.unfinalized", "plan_round.hole"},
		},
	}
}

// doorVocabulary is a small machine for the cases: one step of each shape.
func doorVocabulary() Vocabulary {
	return Vocabulary{
		Machine: "door",
		Steps: map[string]StepKind{
			"knock": {Answers: []string{"open", "shut"}},
			"enter": {Answers: []string{"done"}},
			"paint": {Answers: []string{"done"}, With: map[string]ArgumentKind{
				"colour": {Required: true, OneOf: []string{"green", "white"}},
				"sides":  {List: true},
			}},
		},
		Failures: []string{"stuck", "error"},
		Promises: []Promise{{Transaction: Commit, NeverPasses: []string{"knock.shut"}}},
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

// TestProblems compares everything that is said about a table with mistakes. Each folder is one class of
// mistake.
func TestProblems(t *testing.T) {
	tables, err := filepath.Glob("testdata/problems/*/table.yaml")
	if err != nil || len(tables) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range tables {
		folder := filepath.Dir(path)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			vocabulary := doorVocabulary()
			if strings.Contains(string(text), "machine: round") {
				vocabulary = roundVocabulary()
			}
			m, problems := Load("table.yaml", text, vocabulary)
			if problems.Errors() == 0 || m != nil {
				t.Fatalf("got machine %v and %d problems, want no machine and at least one", m != nil, problems.Errors())
			}
			golden(t, filepath.Join(folder, "want.txt"), problems.Error()+"\n")
			// A case is named after a problem that it shows.
			if code := "[" + filepath.Base(folder) + "]"; !strings.Contains(problems.Error(), code) {
				t.Errorf("no problem has the code %s:\n%v", code, problems)
			}
		})
	}
}

// TestSoundTable accepts a table that uses all of the grammar.
func TestSoundTable(t *testing.T) {
	text, err := os.ReadFile("testdata/door.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m, problems := Load("testdata/door.yaml", text, doorVocabulary())
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
		"an answer twice":    {Answers: []string{"done", "done"}},
		"cancelled as own":   {Answers: []string{"done", "cancelled"}},
		"an error as answer": {Answers: []string{"done", "error"}},
	} {
		v := doorVocabulary()
		v.Steps["enter"] = kind
		if m, problems := Load("door.yaml", doorTable(t), v); m != nil || !hasCode(problems, "bad-vocabulary") {
			t.Errorf("%s: got machine %v and problems\n%v\nwant no machine and bad-vocabulary", name, m != nil, problems)
		}
	}
}
