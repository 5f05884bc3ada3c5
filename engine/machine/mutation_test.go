// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"example.com/bothy/definitions"
)

// pickAnswers answers each step with one of its declared answers.
func pickAnswers(v Vocabulary, pick int) StepFunc {
	return func(_ context.Context, s Step) (string, error) {
		answers := v.Steps[s.Run].answers()
		return answers[pick%len(answers)], nil
	}
}

// tableLines are the lines of round.yaml, and which of them are rows.
func tableLines(t *testing.T) (lines []string, rows []int) {
	t.Helper()
	_, text := definitions.Round()
	lines = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for i, line := range lines {
		if trimmed := strings.TrimSpace(line); trimmed != "" && !strings.HasPrefix(trimmed, "#") {
			rows = append(rows, i)
		}
	}
	return lines, rows
}

// mutant is a table with one mistake.
type mutant struct {
	kind string // of the mistake
	name string
	text string
}

// mutants makes every single mistake with a row, a key, a word or a list of a table: dropped, written twice,
// swapped with another one beside it, or with a word in its place that stands in the same place elsewhere. It
// works on the tree of the YAML, so that no part of the grammar is forgotten.
func mutants(t *testing.T, text []byte, words map[string][]string) []mutant {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	collectWords(&doc, "", words)
	var all []mutant
	add := func(kind, name string) {
		changed, err := yaml.Marshal(&doc)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, mutant{kind, kind + " " + name, string(changed)})
	}
	mutate(&doc, "", "", words, add)
	return all
}

// role is what stands in the place of a value, by the key that it belongs to: the targets of all answers are
// one role, whatever the answer.
func role(key, inside string) string {
	if inside == "answers" || key == "cancelled" || key == "error" || key == "start" {
		return "target"
	}
	return key
}

// collectWords adds each word of the table to the words of its role.
func collectWords(n *yaml.Node, at string, words map[string][]string) {
	switch n.Kind {
	case yaml.MappingNode:
		inside := at
		for i := 0; i+1 < len(n.Content); i += 2 {
			collectWords(n.Content[i+1], role(n.Content[i].Value, inside), words)
		}
	case yaml.ScalarNode:
		if !slices.Contains(words[at], n.Value) {
			words[at] = append(words[at], n.Value)
		}
	case yaml.DocumentNode, yaml.SequenceNode, yaml.AliasNode:
		for _, child := range n.Content {
			collectWords(child, at, words)
		}
	}
}

// mutate makes each mistake in turn, hands it to add, and takes it back.
func mutate(n *yaml.Node, at, path string, words map[string][]string, add func(kind, name string)) {
	whole := n.Content
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(whole); i += 2 {
			name := path + "." + whole[i].Value
			n.Content = slices.Delete(slices.Clone(whole), i, i+2)
			add("drop", name)
			n.Content = append(slices.Clone(whole), whole[i], whole[i+1])
			add("write twice", name)
			for j := i + 2; j < len(whole); j += 2 {
				n.Content = slices.Clone(whole)
				n.Content[i+1], n.Content[j+1] = whole[j+1], whole[i+1]
				add("swap values", name+" and "+whole[j].Value)
				n.Content = slices.Clone(whole)
				n.Content[i], n.Content[i+1], n.Content[j], n.Content[j+1] = whole[j], whole[j+1], whole[i], whole[i+1]
				add("swap places", name+" and "+whole[j].Value)
			}
			n.Content = whole
			mutate(whole[i+1], role(whole[i].Value, at), name, words, add)
		}
	case yaml.SequenceNode:
		for i := range whole {
			name := fmt.Sprintf("%s[%d]", path, i)
			n.Content = slices.Delete(slices.Clone(whole), i, i+1)
			add("drop", name)
			n.Content = slices.Insert(slices.Clone(whole), i, whole[i])
			add("write twice", name)
			for j := i + 1; j < len(whole); j++ {
				n.Content = slices.Clone(whole)
				n.Content[i], n.Content[j] = whole[j], whole[i]
				add("swap places", fmt.Sprintf("%s and %d", name, j))
			}
			n.Content = whole
			mutate(whole[i], at, name, words, add)
		}
	case yaml.ScalarNode:
		old := n.Value
		for _, word := range words[at] {
			if word != old {
				n.Value = word
				add("write another word", fmt.Sprintf("%s: %s instead of %s", path, word, old))
			}
		}
		n.Value = old
	case yaml.DocumentNode, yaml.AliasNode:
		for _, child := range whole {
			mutate(child, at, path, words, add)
		}
	}
}

// swappedRuns gives each two states the step of the other, without their arguments and answers, and each two
// their answers without the step.
func swappedRuns(t *testing.T, text []byte) []mutant {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	steps := child(doc.Content[0], "steps")
	var all []mutant
	for _, key := range []string{"run", "with", "answers"} {
		for i := 1; i < len(steps.Content); i += 2 {
			for j := i + 2; j < len(steps.Content); j += 2 {
				a, b := child(steps.Content[i], key), child(steps.Content[j], key)
				if a == nil || b == nil {
					continue
				}
				*a, *b = *b, *a
				changed, err := yaml.Marshal(&doc)
				if err != nil {
					t.Fatal(err)
				}
				*a, *b = *b, *a
				name := fmt.Sprintf("%s of %s and %s", key, steps.Content[i-1].Value, steps.Content[j-1].Value)
				all = append(all, mutant{"swap " + key, "swap " + name, string(changed)})
			}
		}
	}
	return all
}

// child is the value of a key of a mapping, or nil.
func child(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// meaning is all that a machine does: every path with what its steps do and what comes of it. Names of states
// are not part of it.
func meaning(t *testing.T, m *Machine) string {
	t.Helper()
	paths, all := m.Paths()
	if !all {
		t.Fatal("the table has too many paths to compare")
	}
	var lines []string
	for _, p := range paths {
		line := p.String()
		for _, l := range p.Legs {
			line += printArguments(l.Step.With)
		}
		e := p.End
		line += fmt.Sprintf(" -> %s %s %s %s %s", e.Name, e.Transaction, e.Next, e.Edge, e.Failure)
		if e.Log != nil {
			line += fmt.Sprintf(" %s %q", e.Log.Level, e.Log.Message)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// closedWords are the words that may stand in a place, beside those that the table has there.
func closedWords(v Vocabulary) map[string][]string {
	return map[string][]string{
		"transaction": slices.Clone(transactions), "next": slices.Clone(nexts), "edge": slices.Clone(edges), "level": slices.Clone(levels),
		"log": slices.Clone(levels), "failure": slices.Clone(v.Failures), "run": sortedKeys(v.Steps), "machine": {"restore"},
		"message": {"something happened"}, "in_order": {"true", "false"},
	}
}

// thinned is one mistake of every so many.
func thinned(all []mutant) []mutant {
	var kept []mutant
	for i, m := range all {
		if i%every == 0 {
			kept = append(kept, m)
		}
	}
	return kept
}

// TestMutants makes every single mistake with a table. Each is reported by the prover, or by a case, or the
// table means exactly the same as before.
func TestMutants(t *testing.T) {
	file, text := definitions.Round()
	casesFile, cases := definitions.RoundCases()
	restoreFile, restore := definitions.Restore()
	restoreCasesFile, restoreCases := definitions.RestoreCases()
	sources := folder(t, "testdata/door")
	for _, tt := range []struct {
		table, cases Source
		v            Vocabulary
		least        int
	}{
		{Source{file, text}, Source{casesFile, cases}, roundVocabulary(), 1400},
		{Source{restoreFile, restore}, Source{restoreCasesFile, restoreCases}, restoreVocabulary(), 2500},
		{sources[1], sources[0], doorVocabulary(), 300},
	} {
		t.Run(tt.v.Machine, func(t *testing.T) {
			t.Parallel()
			original, problems := Load(tt.table.File, tt.table.Text, tt.v)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			want := meaning(t, original)
			reported, byCase, same := make(map[string]int), 0, 0
			all := append(mutants(t, tt.table.Text, closedWords(tt.v)), swappedRuns(t, tt.table.Text)...)
			all = thinned(all)
			for _, m := range all {
				machine, problems := Load(tt.table.File, []byte(m.text), tt.v)
				if machine == nil {
					reported[m.kind]++
					placed(t, problems)
					continue
				}
				if meaning(t, machine) == want {
					same++
					continue
				}
				r := Check("mutant", []Source{{tt.table.File, []byte(m.text)}, tt.cases}, tt.v)
				if r.Problems.Errors() == 0 {
					t.Errorf("%s: accepted, and the table means something else:\n%s", m.name, m.text)
					continue
				}
				byCase++
				t.Logf("only a case reports: %s", m.name)
				// Of the tables of this program, the promises hold all but the text of a record, the order of a list and
				// an answer of restore.yaml that is told as a broken step: there it changes nothing.
				told := slices.ContainsFunc([]string{"log.message", ".with.roles[", ": end failed instead of counter"}, func(part string) bool { return strings.Contains(m.name, part) })
				if tt.v.Machine != doorVocabulary().Machine && !told {
					t.Errorf("%s: no promise of the program forbids it", m.name)
				}
			}
			total := byCase
			for _, kind := range sortedKeys(reported) {
				t.Logf("%5d reported: %s", reported[kind], kind)
				total += reported[kind]
			}
			t.Logf("%d mistakes: %d reported by the prover, %d by a case alone, %d mean the same as before", len(all), total-byCase, byCase, same)
			t.Logf("score: %.1f percent", 100*float64(total)/float64(len(all)-same))
			if total+same != len(all) || total < tt.least/(every+every/10) {
				t.Errorf("got %d reported and %d the same of %d, want all of them and at least %d reported", total, same, len(all), tt.least/(every+every/10))
			}
		})
	}
}

// TestDroppedRow reports every row of round.yaml that is missing, whatever the row.
func TestDroppedRow(t *testing.T) {
	lines, rows := tableLines(t)
	for _, i := range rows {
		text := strings.Join(slices.Delete(slices.Clone(lines), i, i+1), "\n") + "\n"
		m, problems := Load("round.yaml", []byte(text), roundVocabulary())
		if m != nil || problems.Errors() == 0 {
			t.Errorf("without line %d (%s) the table is accepted", i+1, strings.TrimSpace(lines[i]))
		}
		placed(t, problems)
	}
}

// TestRenamedState reports a state that has another name in its row than where it is led to, at the line
// that leads to it.
func TestRenamedState(t *testing.T) {
	lines, rows := tableLines(t)
	table, _ := Parse(definitions.Round())
	for _, s := range table.States {
		i := s.Name.At.Line - 1
		if !slices.Contains(rows, i) {
			t.Fatalf("state %s is at line %d, which is no row", s.Name.Text, i+1)
		}
		changed := slices.Clone(lines)
		changed[i] = strings.Replace(changed[i], s.Name.Text+":", "renamed:", 1)
		m, problems := Load("round.yaml", []byte(strings.Join(changed, "\n")+"\n"), roundVocabulary())
		if m != nil || !hasCode(problems, "unknown-state") {
			t.Errorf("state %s renamed: got\n%v\nwant a problem with the code unknown-state", s.Name.Text, problems)
		}
		for _, p := range problems {
			if p.Code == "unknown-state" && !strings.Contains(lines[p.At.Line-1], s.Name.Text) {
				t.Errorf("state %s renamed: the problem is at line %d, which does not lead to it:\n%s", s.Name.Text, p.At.Line, lines[p.At.Line-1])
			}
		}
	}
}
