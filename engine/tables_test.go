// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/bothy/definitions"
	"example.com/bothy/engine"
	"example.com/bothy/engine/problem"
)

// TestCheckTables: the tables of this binary are proven, and every path of them has a case.
func TestCheckTables(t *testing.T) {
	t.Parallel()
	r := engine.CheckTables()
	if len(r.Problems) > 0 {
		t.Errorf("got problems, want none, not even a path without a case:\n%v", r.Problems)
	}
	if strings.Join(r.Tables, " ") != "round restore_finalize" || r.Paths != 40+86 || r.Cases < r.Paths {
		t.Errorf("got tables %v, %d paths and %d cases, want round and restore_finalize, 40 and 86 paths and a case for each", r.Tables, r.Paths, r.Cases)
	}
}

// definitionsFolder writes files into a folder of the test.
func definitionsFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// codes are the codes of a list, each once, in the order of the list.
func codes(problems problem.List) string {
	var found []string
	for _, p := range problems {
		if len(found) == 0 || found[len(found)-1] != p.Code {
			found = append(found, p.Code)
		}
	}
	return strings.Join(found, " ")
}

// TestCheckDefinitions holds the tables of any folder to what the tables of the binary keep.
func TestCheckDefinitions(t *testing.T) {
	t.Parallel()
	_, table := definitions.Round()
	_, cases := definitions.RoundCases()
	round := string(table)
	without := func(line string) string {
		before, after, found := strings.Cut(round, line)
		if _, rest, more := strings.Cut(after, "\n"); found && more {
			return before + rest
		}
		t.Fatalf("round.yaml has no %q", line)
		return ""
	}
	for name, tt := range map[string]struct {
		files map[string]string
		want  string // the codes
	}{
		"the same tables":          {map[string]string{"round.yaml": round, "round.cases.yaml": string(cases)}, ""},
		"another name":             {map[string]string{"mine.yaml": round, "mine.cases.yaml": string(cases)}, ""},
		"no cases":                 {map[string]string{"round.yaml": round}, "no-cases"},
		"cases alone":              {map[string]string{"round.cases.yaml": string(cases)}, "no-table stray-cases"},
		"cases of another file":    {map[string]string{"round.yaml": round, "other.cases.yaml": string(cases)}, "stray-cases no-cases"},
		"nothing":                  {nil, "no-table"},
		"only other files":         {map[string]string{"round.yml": round, "README.md": "tables"}, "no-table"},
		"an unknown machine":       {map[string]string{"round.yaml": strings.Replace(round, "machine: round", "machine: rond", 1)}, "unknown-machine"},
		"twice the same":           {map[string]string{"a.yaml": round, "b.yaml": round, "a.cases.yaml": string(cases), "b.cases.yaml": string(cases)}, "duplicate-machine"},
		"without a core promise":   {map[string]string{"round.yaml": without("  - {transaction: commit, passes:"), "round.cases.yaml": string(cases)}, "missing-promise"},
		"without any promise":      {map[string]string{"round.yaml": round[:strings.Index(round, "promises:")], "round.cases.yaml": string(cases)}, "missing-promise"},
		"with a weaker promise":    {map[string]string{"round.yaml": strings.Replace(round, ", in_order: true", "", 1), "round.cases.yaml": string(cases)}, "missing-promise"},
		"a case that fails":        {map[string]string{"round.yaml": round, "round.cases.yaml": strings.Replace(string(cases), "end: idle", "end: locked", 1)}, "failed-case"},
		"an alias bomb":            {map[string]string{"round.yaml": bomb(round)}, "wrong-kind"},
		"20,000 brackets":          {map[string]string{"round.yaml": strings.Repeat("[", 20_000)}, "bad-yaml"},
		"cases of 20,000 brackets": {map[string]string{"round.yaml": round, "round.cases.yaml": strings.Repeat("{", 20_000)}, "bad-yaml"},
		"over the size":            {map[string]string{"round.yaml": strings.Repeat("#", 1<<20+1)}, "too-large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := engine.CheckDefinitions(definitionsFolder(t, tt.files))
			got := codes(r.Problems)
			if got != tt.want {
				t.Errorf("got codes %q, want %q:\n%v", got, tt.want, r.Problems)
			}
			for _, p := range r.Problems {
				if p.At.Line < 1 || p.At.Col < 1 || p.At.File == "" {
					t.Errorf("a problem without a place: %v", p)
				}
			}
		})
	}
}

// bomb is a table whose promises are nine levels of ten aliases.
func bomb(table string) string {
	var b strings.Builder
	b.WriteString(strings.Split(table, "promises:")[0] + "promises: [&a [x]")
	for level := 'b'; level < 'k'; level++ {
		fmt.Fprintf(&b, ", &%c [%s]", level, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", level-1), 10), ", "))
	}
	return b.String() + "]\n"
}

// TestMachines gives the tables that may run, of this binary or of a folder.
func TestMachines(t *testing.T) {
	t.Parallel()
	own, problems := engine.Machines("")
	if len(own) != 2 || len(problems) > 0 {
		t.Errorf("got %d tables and problems\n%v\nwant two and none", len(own), problems)
	}
	_, table := definitions.Round()
	good, problems := engine.Machines(definitionsFolder(t, map[string]string{"mine.yaml": string(table)}))
	if len(good) != 1 || problems.Errors() > 0 {
		t.Errorf("a folder with the round: got %d tables and problems\n%v\nwant one and none", len(good), problems)
	}
	broken := strings.Replace(string(table), "hole: end gap", "hole: decide", 1)
	machines, problems := engine.Machines(definitionsFolder(t, map[string]string{"round.yaml": broken}))
	if len(machines) != 0 || problems.Errors() == 0 {
		t.Errorf("a folder with a broken table: got %d tables and %d errors, want no table", len(machines), problems.Errors())
	}
}
