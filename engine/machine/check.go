// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"

	"example.com/bothy/engine/problem"
)

// Source is one file: a table, or the cases of one.
type Source struct {
	File string // as problems name it
	Text []byte
}

// casesEnd is how the name of a file of cases ends: round.cases.yaml holds those of round.yaml.
const casesEnd = ".cases.yaml"

// isCases says that the file holds cases.
func (s Source) isCases() bool { return strings.HasSuffix(s.File, casesEnd) }

// cases is the name of the file that holds the cases of this table.
func (s Source) cases() string { return strings.TrimSuffix(s.File, ".yaml") + casesEnd }

// Report is what was found in some files.
type Report struct {
	Machines     []*Machine // the tables that may run, in the order of their files
	Cases, Paths int
	Problems     problem.List // sorted
}

// Check proves every table among the sources against the vocabulary of its machine and plays the cases that
// stand beside it. where stands for the sources as a whole, in problems that no single file has.
func Check(where string, sources []Source, vocabularies ...Vocabulary) Report {
	var r Report
	report := func(at problem.Position, severity problem.Severity, code, what, fix string) {
		r.Problems = append(r.Problems, problem.Problem{At: at, Severity: severity, Code: code, What: what, Fix: fix})
	}
	tables := make(map[string]problem.Position) // machine -> where the first table of it says so
	found := false
	for _, s := range sources {
		if s.isCases() {
			continue
		}
		found = true
		t, problems := Parse(s.File, s.Text)
		r.Problems = append(r.Problems, problems...)
		if at, twice := tables[t.Machine.Text]; twice && t.Machine.Text != "" {
			r.Problems = append(r.Problems, problem.Problem{
				At: t.Machine.At, Also: at, Severity: problem.Error, Code: "duplicate-machine",
				What: fmt.Sprintf("two tables are the machine %q, and only one of them could run", t.Machine.Text), Fix: "keep one of the two",
			})
		} else {
			tables[t.Machine.Text] = t.Machine.At
		}
		v, known := t.vocabulary(vocabularies, &r.Problems)
		var m *Machine
		if known && problems.Errors() == 0 {
			m, problems = Compile(t, v)
			r.Problems = append(r.Problems, problems...)
		}
		i := slices.IndexFunc(sources, func(other Source) bool { return other.File == s.cases() })
		switch {
		case i >= 0:
			r.play(m, sources[i])
		case m != nil:
			report(t.At, problem.Warning, "no-cases", fmt.Sprintf("no cases say what the machine %s does, so a change of its table is proven safe and not seen to be meant", m.name), "write "+s.cases())
		}
		if m != nil {
			r.Machines = append(r.Machines, m)
		}
	}
	if !found {
		report(problem.Position{File: where, Line: 1, Col: 1}, problem.Error, "no-table", "there is no table here: a table is a file whose name ends in .yaml and not in "+casesEnd, "write one, or name another folder")
	}
	for _, s := range sources {
		if s.isCases() && !slices.ContainsFunc(sources, func(table Source) bool { return !table.isCases() && table.cases() == s.File }) {
			_, problems := parseCases(s.File, s.Text)
			r.Problems = append(r.Problems, problems...)
			table := strings.TrimSuffix(s.File, casesEnd) + ".yaml"
			report(problem.Position{File: s.File, Line: 1, Col: 1}, problem.Error, "stray-cases", fmt.Sprintf("these are the cases of %s, and there is no such file", table), "write the table, or rename this file after one that exists")
		}
	}
	r.Problems.Sort()
	return r
}

// play reads the cases of a table and plays them when the table may run.
func (r *Report) play(m *Machine, s Source) {
	c, problems := parseCases(s.File, s.Text)
	r.Problems = append(r.Problems, problems...)
	if m == nil {
		return
	}
	r.Cases += len(c.list)
	paths, problems := m.try(c, problems.Errors() == 0)
	r.Paths += paths
	r.Problems = append(r.Problems, problems...)
}

// vocabulary finds what the table may say, by the name of its machine.
func (t *Table) vocabulary(vocabularies []Vocabulary, problems *problem.List) (Vocabulary, bool) {
	if t.Machine.Text == "" {
		return Vocabulary{}, false // said already
	}
	names := make([]string, len(vocabularies))
	for i, v := range vocabularies {
		if v.Machine == t.Machine.Text {
			return v, true
		}
		names[i] = v.Machine
	}
	*problems = append(*problems, problem.Problem{
		At: t.Machine.At, Severity: problem.Error, Code: "unknown-machine",
		What: fmt.Sprintf("machine is %q, and this program runs no such machine", t.Machine.Text), Fix: didYouMean(problem.Nearest(t.Machine.Text, names), names),
	})
	return Vocabulary{}, false
}
