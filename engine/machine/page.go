// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strings"
)

// Page is a machine as a Markdown page: its steps and what their answers mean, its ends, its promises and what
// they are for, and every path with what comes of it, named after the case that walks it. The text ends with a
// newline.
func Page(m *Machine, cases Source) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Table %s, path by path\n\n", m.name)
	fmt.Fprintf(&b, "Made from `%s` and `%s`: change these, never this page.\n\n", m.table.At.File, cases.File)
	m.pageSteps(&b)
	m.pageEnds(&b)
	m.pagePromises(&b)
	paths, all := m.Paths()
	fmt.Fprintf(&b, "## Every path\n\nEach row is what the table did when the steps answered so. `cancelled` and `error` say that a step, or the\ncommit, broke off there. A step that broke off may have done its work: its end rolls back.\n\n")
	b.WriteString(PathTable(paths, m.CaseNames(cases)))
	if !all {
		fmt.Fprintf(&b, "\nThe table has more paths than these %d.\n", len(paths))
	}
	return []byte(b.String())
}

// CaseNames are the names of the cases by the path that they walk, of a file of cases that fits the table. Give
// it to PathTable.
func (m *Machine) CaseNames(cases Source) map[string]string {
	c, _ := parseCases(cases.File, cases.Text)
	t := &trial{m: m, walked: make(map[string]string)}
	for i := range c.list {
		t.play(&c.list[i])
	}
	return t.walked
}

// PathTable is a Markdown table of paths: what happens, what the steps answer, and what comes of it.
func PathTable(paths []Path, names map[string]string) string {
	var b strings.Builder
	b.WriteString("| What happens | Answers | End | Transaction | Then | Told |\n|---|---|---|---|---|---|\n")
	for _, p := range paths {
		var answers []string
		for _, l := range p.Legs {
			answers = append(answers, fmt.Sprintf("%s `%s`", l.Step.State, l.Answer))
		}
		if p.Commit != "" {
			answers = append(answers, fmt.Sprintf("commit `%s`", p.Commit))
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s | %s |\n", cell(names[p.key()]), strings.Join(answers, ", "), p.End.Name, p.End.Transaction, p.End.Next, told(p.End))
	}
	return b.String()
}

// told says in a table what an end tells: a failure, a record, or that it leaves the failing state alone.
func told(e End) string {
	var parts []string
	if e.Failure != "" {
		parts = append(parts, "failure `"+e.Failure+"`")
	}
	if e.Log != nil {
		parts = append(parts, fmt.Sprintf("log %s: %s", e.Log.Level, cell(e.Log.Message)))
	}
	if e.Edge == Unchanged {
		parts = append(parts, "failing state unchanged")
	}
	return strings.Join(parts, "; ")
}

// cell is a text that does not end a cell of a Markdown table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func (m *Machine) pageSteps(b *strings.Builder) {
	fmt.Fprintf(b, "## Steps\n\nIt starts at `%s`.\n\n| State | Runs | Answer | Means | Leads to |\n|---|---|---|---|---|\n", m.start)
	for i := range m.table.States {
		s := &m.table.States[i]
		kind := m.vocabulary.Steps[s.Run.Text]
		runs := "`" + s.Run.Text + "`"
		if len(s.With) > 0 {
			runs += " with `" + strings.TrimSpace(printArguments(m.states[s.Name.Text].step.With)) + "`"
		}
		if kind.Does != "" {
			runs += ": " + cell(kind.Does)
		}
		for n, arrow := range m.vocabulary.inOrder(s, nil) {
			name := "`" + s.Name.Text + "`"
			if n > 0 {
				name, runs = "", ""
			}
			fmt.Fprintf(b, "| %s | %s | `%s` | %s | %s |\n", name, runs, arrow.Answer.Text, cell(kind.means(arrow.Answer.Text)), arrow.Target.words())
		}
	}
	b.WriteString("\nWhatever the step:")
	for i, arrow := range m.table.Anywhere {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(b, " `%s` leads to %s", arrow.Answer.Text, arrow.Target.words())
	}
	b.WriteString(". A panic counts as an error.\n\n")
}

// words is a target in a page.
func (t Target) words() string {
	if t.End {
		return "end `" + t.Name + "`"
	}
	return "`" + t.Name + "`"
}

func (m *Machine) pageEnds(b *strings.Builder) {
	b.WriteString("## Ends\n\n| End | Transaction | Then | Told |\n|---|---|---|---|\n")
	for _, e := range m.ends {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", e.Name, e.Transaction, e.Next, told(e))
	}
	b.WriteString("\n")
}

func (m *Machine) pagePromises(b *strings.Builder) {
	if len(m.vocabulary.Promises) == 0 {
		return
	}
	b.WriteString("## Promises\n\nProven on every path before anything runs. The program needs each of these: none can be removed or weakened,\nin this table or in another one.\n\n")
	for _, p := range m.vocabulary.Promises {
		fmt.Fprintf(b, "- `%s`\n", p)
		if p.Why != "" {
			fmt.Fprintf(b, "  Without it, %s.\n", p.Why)
		}
	}
	b.WriteString("\n")
}
