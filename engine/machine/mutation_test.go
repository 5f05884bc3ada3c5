// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

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

// mutant is round.yaml with one mistake.
type mutant struct {
	name string
	text string
}

// mutants are all single mistakes with a row: dropped, written twice, its body swapped with that of
// another row, an answer led elsewhere, a word of an end changed.
func mutants(t *testing.T) []mutant {
	lines, rows := tableLines(t)
	var all []mutant
	add := func(name string, changed []string) {
		all = append(all, mutant{name: name, text: strings.Join(changed, "\n") + "\n"})
	}
	for n, i := range rows {
		add(fmt.Sprintf("drop line %d", i+1), slices.Delete(slices.Clone(lines), i, i+1))
		add(fmt.Sprintf("write line %d twice", i+1), slices.Insert(slices.Clone(lines), i, lines[i]))
		for _, j := range rows[n+1:] {
			if changed, ok := swapBodies(lines, i, j); ok {
				add(fmt.Sprintf("swap the bodies of lines %d and %d", i+1, j+1), changed)
			}
		}
		for name, line := range changedWords(t, lines[i]) {
			changed := slices.Clone(lines)
			changed[i] = line
			add(fmt.Sprintf("line %d: %s", i+1, name), changed)
		}
	}
	return all
}

var rowPattern = regexp.MustCompile(`^( +[a-z_]+: *)(\{.*\})(.*)$`)

// swapBodies gives each of two rows the body of the other.
func swapBodies(lines []string, i, j int) ([]string, bool) {
	a, b := rowPattern.FindStringSubmatch(lines[i]), rowPattern.FindStringSubmatch(lines[j])
	if a == nil || b == nil {
		return nil, false
	}
	changed := slices.Clone(lines)
	changed[i], changed[j] = a[1]+b[2], b[1]+a[2]
	return changed, true
}

var (
	targetPattern = regexp.MustCompile(`[a-z]+: (end [a-z]+|[a-z_]+)[,}]`)
	wordPattern   = regexp.MustCompile(`(transaction|next|edge|failure|run|start|machine|level): ([a-z_]+)`)
)

// changedWords leads each answer of a row to each other place, and gives each closed word each other
// value.
func changedWords(t *testing.T, line string) map[string]string {
	t.Helper()
	table, problems := Parse(definitions.Round())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	changed := make(map[string]string)
	if strings.Contains(line, "answers:") || strings.HasPrefix(line, "anywhere:") {
		for _, at := range targetPattern.FindAllStringSubmatchIndex(line, -1) {
			if old := line[at[2]:at[3]]; !strings.HasPrefix(line[at[0]:], "run: ") {
				for _, target := range places(table) {
					if target != old {
						changed[fmt.Sprintf("lead %q to %s", line[at[0]:at[3]], target)] = line[:at[2]] + target + line[at[3]:]
					}
				}
			}
		}
	}
	v := roundVocabulary()
	sets := map[string][]string{
		"transaction": transactions, "next": nexts, "edge": edges, "level": levels, "failure": v.Failures,
		"run": sortedKeys(v.Steps), "start": places(table), "machine": {"restore"},
	}
	if strings.Contains(line, "  - {") {
		return changed
	}
	for _, at := range wordPattern.FindAllStringSubmatchIndex(line, -1) {
		key, old := line[at[2]:at[3]], line[at[4]:at[5]]
		for _, value := range sets[key] {
			if value != old {
				changed[fmt.Sprintf("%s: %s instead of %s", key, value, old)] = line[:at[4]] + value + line[at[5]:]
			}
		}
	}
	return changed
}

// places are all targets that a table may name.
func places(t *Table) []string {
	var names []string
	for _, s := range t.States {
		names = append(names, s.Name.Text)
	}
	for _, e := range t.Ends {
		names = append(names, "end "+e.End.Name)
	}
	return names
}

// TestMutants makes every single mistake with a row of round.yaml. Each is reported with a line, or the
// table means exactly the same as before.
func TestMutants(t *testing.T) {
	want := truthTable(roundMachine(t), roundVocabulary())
	reported, same := 0, 0
	for _, m := range mutants(t) {
		machine, problems := Load("round.yaml", []byte(m.text), roundVocabulary())
		switch {
		case machine == nil:
			reported++
			placed(t, problems)
		case truthTable(machine, roundVocabulary()) == want:
			same++
		default:
			t.Errorf("%s: accepted, and the table means something else", m.name)
		}
	}
	t.Logf("%d mistakes were reported, %d mean the same as before", reported, same)
	if reported < 500 {
		t.Errorf("only %d mistakes were reported: the test makes too few", reported)
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
