// SPDX-License-Identifier: Apache-2.0

package diagram

import (
	"fmt"
	"strings"

	"example.com/bothy/engine/machine"
)

// mermaid draws a flowchart. Labels are quoted, and what Mermaid or HTML would read in them is escaped.
func mermaid(m *machine.Machine) string {
	t := m.Table()
	label := func(lines ...string) string {
		for i, line := range lines {
			lines[i] = mermaidText(line)
		}
		return `"` + strings.Join(lines, "<br>") + `"`
	}
	var b strings.Builder
	fmt.Fprintf(&b, "flowchart LR\n  accTitle: %s\n  accDescr: %s\n", mermaidText(title(m)), mermaidText(summary(m)))
	fmt.Fprintf(&b, "  start((start)) --> %s%s\n", statePrefix, t.Start.Text)
	for _, s := range t.States {
		lines := append([]string{s.Name.Text, s.Run.Text}, arguments(s)...)
		fmt.Fprintf(&b, "  %s%s[%s]\n", statePrefix, s.Name.Text, label(lines...))
	}
	for _, row := range t.Ends {
		lines := append([]string{row.End.Name}, says(row.End)...)
		fmt.Fprintf(&b, "  %s%s([%s]):::%s\n", endPrefix, row.End.Name, label(lines...), look(row.End))
	}
	for _, s := range t.States {
		for _, a := range s.Answers {
			fmt.Fprintf(&b, "  %s%s -->|%s| %s\n", statePrefix, s.Name.Text, label(a.Answer.Text), node(a.Target))
		}
	}
	b.WriteString("  any[any step]\n")
	for _, a := range t.Anywhere {
		fmt.Fprintf(&b, "  any -.->|%s| %s\n", label(a.Answer.Text), node(a.Target))
	}
	b.WriteString("  classDef commit fill:#d7f0dd,stroke:#1a7f37,color:#0b2e16\n")
	b.WriteString("  classDef rollback fill:#e8ecf1,stroke:#57606a,color:#1b2026\n")
	b.WriteString("  classDef failure fill:#fde2e0,stroke:#b42318,color:#4a0d08\n")
	return b.String()
}

// mermaidText escapes what Mermaid, or the HTML that it makes, would take for its own.
func mermaidText(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch r {
		case '"', '#', '&', '<', '>', ';', '`', '\\', '|', '{', '}', '[', ']', '%':
			fmt.Fprintf(&b, "#%d;", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// dot draws a directed graph for Graphviz.
func dot(m *machine.Machine) string {
	t := m.Table()
	label := func(lines ...string) string {
		for i, line := range lines {
			lines[i] = dotText(line)
		}
		return `"` + strings.Join(lines, `\n`) + `"`
	}
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n", label(m.Name()))
	b.WriteString("  rankdir=LR;\n  node [shape=box, fontname=\"Helvetica\"];\n  edge [fontname=\"Helvetica\"];\n")
	fmt.Fprintf(&b, "  start [shape=circle];\n  start -> %s%s;\n", statePrefix, t.Start.Text)
	for _, s := range t.States {
		lines := append([]string{s.Name.Text, s.Run.Text}, arguments(s)...)
		fmt.Fprintf(&b, "  %s%s [label=%s];\n", statePrefix, s.Name.Text, label(lines...))
	}
	b.WriteString("  subgraph ends {\n    rank=same;\n")
	colour := map[string]string{"commit": "#d7f0dd", "rollback": "#e8ecf1", "failure": "#fde2e0"}
	for _, row := range t.Ends {
		lines := append([]string{row.End.Name}, says(row.End)...)
		fmt.Fprintf(&b, "    %s%s [label=%s, style=\"rounded,filled\", fillcolor=\"%s\"];\n", endPrefix, row.End.Name, label(lines...), colour[look(row.End)])
	}
	b.WriteString("  }\n")
	for _, s := range t.States {
		for _, a := range s.Answers {
			fmt.Fprintf(&b, "  %s%s -> %s [label=%s];\n", statePrefix, s.Name.Text, node(a.Target), label(a.Answer.Text))
		}
	}
	b.WriteString("  any [label=\"any step\", style=dashed];\n")
	for _, a := range t.Anywhere {
		fmt.Fprintf(&b, "  any -> %s [label=%s, style=dashed];\n", node(a.Target), label(a.Answer.Text))
	}
	b.WriteString("}\n")
	return b.String()
}

// dotText escapes what ends a quoted text of DOT or is an escape in it.
func dotText(text string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) }

// title is what the picture is called.
func title(m *machine.Machine) string { return "The table " + m.Name() }

// summary tells in words what the picture shows, for who cannot see it.
func summary(m *machine.Machine) string {
	t := m.Table()
	var b strings.Builder
	fmt.Fprintf(&b, "It starts at %s. ", t.Start.Text)
	leads := func(arrows []machine.Arrow) {
		for i, a := range arrows {
			switch {
			case i > 0 && i == len(arrows)-1:
				b.WriteString(" and ")
			case i > 0:
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s leads to ", a.Answer.Text)
			if a.Target.End {
				b.WriteString("end ")
			}
			b.WriteString(a.Target.Name)
		}
		b.WriteString(". ")
	}
	for _, s := range t.States {
		fmt.Fprintf(&b, "State %s runs %s: ", s.Name.Text, s.Run.Text)
		leads(s.Answers)
	}
	b.WriteString("Any step: ")
	leads(t.Anywhere)
	for _, row := range t.Ends {
		fmt.Fprintf(&b, "End %s: %s. ", row.End.Name, strings.Join(says(row.End), ", "))
	}
	return strings.TrimSpace(b.String())
}
