// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/bothy/definitions"
	"example.com/bothy/engine/problem"
)

// doorTable is the sound table of the small machine.
func doorTable(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/door/door.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestParseKeepsPlaces spot-checks the places that problems and counterexamples point to.
func TestParseKeepsPlaces(t *testing.T) {
	table, problems := Parse("door.yaml", doorTable(t))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for what, is := range map[string]struct{ got, want string }{
		"table":      {table.At.String(), "door.yaml:1:1"},
		"machine":    {table.Machine.At.String(), "door.yaml:1:10"},
		"start":      {table.Start.At.String(), "door.yaml:2:8"},
		"state":      {table.States[1].Name.At.String(), "door.yaml:5:3"},
		"argument":   {table.States[1].With[1].Values[1].At.String(), "door.yaml:5:63"},
		"answer":     {table.States[0].Answers[1].Answer.At.String(), "door.yaml:4:51"},
		"target":     {table.States[0].Answers[1].Target.At.String(), "door.yaml:4:57"},
		"anywhere":   {table.Anywhere[1].Target.At.String(), "door.yaml:7:40"},
		"end":        {table.Ends[3].At.String(), "door.yaml:12:3"},
		"failure":    {table.Ends[3].FailureAt.String(), "door.yaml:12:54"},
		"promises":   {table.PromisesAt.String(), "door.yaml:14:3"},
		"promise":    {table.Promises[2].At.String(), "door.yaml:16:5"},
		"in promise": {table.Promises[2].place(keyPasses, 1).String(), "door.yaml:16:35"},
	} {
		if is.got != is.want {
			t.Errorf("%s: got place %s, want %s", what, is.got, is.want)
		}
	}
}

// TestParseCountsColumnsInCharacters: an editor counts characters, not bytes.
func TestParseCountsColumnsInCharacters(t *testing.T) {
	_, problems := Parse("t.yaml", []byte("machine: {\"ééé\": 1, x: 2}\n"))
	for _, p := range problems {
		if p.At.Line == 1 && p.At.Col == 10 && p.Code == "wrong-kind" {
			return
		}
	}
	t.Errorf("no problem at 1:10:\n%v", problems)
}

// TestParseSurvives gives text that is no table at all. Each must end at once with a problem in the file.
func TestParseSurvives(t *testing.T) {
	door := string(doorTable(t))
	for name, tt := range map[string]struct{ text, code string }{
		"nothing":             {"", "empty-file"},
		"byte order mark":     {"\ufeff", "empty-file"},
		"only a marker":       {"---\n", "wrong-kind"},
		"a word":              {"round\n", "wrong-kind"},
		"a list":              {"- machine: round\n", "wrong-kind"},
		"over the size":       {strings.Repeat("#", maxText+1), "too-large"},
		"many brackets":       {"machine: " + strings.Repeat("[", 20_000), "bad-yaml"},
		"not UTF-8":           {"machine: \xff\xfe\n", "bad-yaml"},
		"NUL":                 {"machine: \x00\n", "bad-yaml"},
		"a tab":               {"machine: door\n\tstart: x\n", "bad-yaml"},
		"unknown alias":       {"machine: *door\n", "bad-yaml"},
		"an alias":            {strings.Replace(door, "start: at_door", "start: &a at_door", 1) + "  - *a\n", "wrong-kind"},
		"a merge key":         {"<<: {machine: door}\n", "wrong-kind"},
		"a tag of its own":    {strings.Replace(door, "machine: door", "machine: !door door", 1), "wrong-kind"},
		"a broken second":     {door + "---\n[", "bad-yaml"},
		"too many states":     {manyStates(maxStates + 1), "too-large"},
		"too many promises":   {door + strings.Repeat("  - {end: inside, next: wait}\n", maxPromises), "too-large"},
		"too many words":      {door + "  - {end: inside, in_order: true, passes: [" + strings.Repeat("knock, ", maxWords) + "knock]}\n", "too-large"},
		"a list of mappings":  {door + "  - {end: inside, passes: [{knock: open}]}\n", "wrong-kind"},
		"a long word":         {"machine: " + strings.Repeat("a", 100) + "\n", "bad-name"},
		"no answer anywhere":  {strings.Replace(door, "error: end fell", "error: [end fell]", 1), "wrong-kind"},
		"anywhere as a word":  {strings.Replace(door, "{cancelled: end left, error: end fell}", "end fell", 1), "wrong-kind"},
		"an end as a word":    {strings.Replace(door, "{transaction: rollback, next: wait}", "rollback", 1), "wrong-kind"},
		"a log as a word":     {strings.Replace(door, "{level: info, message: somebody came in}", "info", 1), "wrong-kind"},
		"a promise as a word": {door + "  - commit\n", "wrong-kind"},
		"a list in with":      {strings.Replace(door, "[front, back]", "[front, [back]]", 1), "wrong-kind"},
		"a list as target":    {strings.Replace(door, "open: painting", "open: [painting]", 1), "wrong-kind"},
		"a key that is a map": {"{a: b}: c\n", "wrong-kind"},
	} {
		t.Run(name, func(t *testing.T) {
			table, problems := Parse("t.yaml", []byte(tt.text))
			if table == nil || !hasCode(problems, tt.code) {
				t.Errorf("input %s: got table %v and problems\n%v\nwant a table and the code %s", quote(tt.text), table != nil, problems, tt.code)
			}
			placed(t, problems)
		})
	}
}

// TestParseAcceptsOtherLineEnds: the files of Windows editors are read like any other.
func TestParseAcceptsOtherLineEnds(t *testing.T) {
	text := append([]byte("\ufeff"), bytes.ReplaceAll(doorTable(t), []byte("\n"), []byte("\r\n"))...)
	if _, problems := Load("t.yaml", text, doorVocabulary()); len(problems) > 0 {
		t.Errorf("got problems, want none:\n%v", problems)
	}
}

// TestLargestTable proves a table at every limit at once: the work has a bound that nobody notices.
func TestLargestTable(t *testing.T) {
	_, problems := Load("t.yaml", []byte(manyStates(maxStates)), doorVocabulary())
	if !hasCode(problems, "broken-promise") || hasCode(problems, "too-large") {
		t.Errorf("got problems\n%v\nwant the broken promise and none about the size", problems)
	}
}

// manyStates is a chain of states in which every state may go to the next one by two ways, so that there
// are more paths than could ever be counted.
func manyStates(n int) string {
	var b strings.Builder
	b.WriteString("machine: door\nstart: s0\nsteps:\n")
	for i := range n {
		target := fmt.Sprintf("s%d", i+1)
		if i == n-1 {
			target = "end inside"
		}
		fmt.Fprintf(&b, "  s%d: {run: knock, answers: {open: %s, shut: %s}}\n", i, target, target)
	}
	b.WriteString("anywhere: {cancelled: end left, error: end fell}\nends:\n")
	b.WriteString("  inside: {transaction: commit, next: wait}\n")
	b.WriteString("  left: {transaction: rollback, next: stop, edge: unchanged}\n")
	b.WriteString("  fell: {transaction: rollback, next: wait, failure: stuck}\npromises:\n")
	b.WriteString("  - {transaction: commit, never_passes: [knock.shut]}\n")
	for i := range 49 {
		fmt.Fprintf(&b, "  - {transaction: commit, in_order: true, passes: [knock%s]}\n", strings.Repeat(", knock", i))
	}
	return b.String()
}

func hasCode(problems problem.List, code string) bool {
	for _, p := range problems {
		if p.Code == code {
			return true
		}
	}
	return false
}

// placed wants every problem to point into the file and to be worded.
func placed(t *testing.T, problems problem.List) {
	t.Helper()
	for _, p := range problems {
		if p.At.File == "" || p.At.Line < 1 || p.At.Col < 1 || p.Code == "" || p.What == "" || p.Fix == "" || strings.HasSuffix(p.What, ".") {
			t.Errorf("a problem without a place, a code, a text or a fix: %#v", p)
		}
	}
}

// FuzzLoad reads any text as a table. Whatever it is: no panic, every problem has a place, the same text
// gives the same problems, and a machine that comes out runs to an end.
func FuzzLoad(f *testing.F) {
	_, round := definitions.Round()
	f.Add(round)
	tables, err := filepath.Glob("testdata/*/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(tables, "testdata/door/door.yaml") {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, vocabulary := range []Vocabulary{roundVocabulary(), doorVocabulary()} {
			m, problems := Load("t.yaml", text, vocabulary)
			placed(t, problems)
			if _, again := Load("t.yaml", text, vocabulary); again.Error() != problems.Error() {
				t.Errorf("the same text gave\n%v\nand then\n%v", problems, again)
			}
			if (m != nil) != (problems.Errors() == 0) {
				t.Fatalf("got machine %v with problems\n%v", m != nil, problems)
			}
			if m != nil {
				for i := range 8 {
					runsToAnEnd(t, m, vocabulary, i)
				}
			}
		}
	})
}

// runsToAnEnd runs a proven machine with answers picked by a number and wants an end of the table.
func runsToAnEnd(t *testing.T, m *Machine, v Vocabulary, pick int) {
	t.Helper()
	result := m.Run(t.Context(), pickAnswers(v, pick))
	for _, e := range m.Ends() {
		if e.Name == result.End.Name && result.Err == nil {
			return
		}
	}
	t.Errorf("a proven machine came to end %q with %v", result.End.Name, result.Err)
}
