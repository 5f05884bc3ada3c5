// SPDX-License-Identifier: Apache-2.0

// Package problem owns what an author is told about a file: a list of positioned findings, each with
// what is wrong, why, and how to mend it.
//
// It refuses two things. A problem never stands for an operating error (a lost connection, a failed
// commit): those are Go errors. And a problem never has an empty position: a file that cannot be read
// at all is reported at 1:1.
package problem

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Position is a place in a file that a person wrote.
type Position struct {
	File string // as the person named it; "-" is standard input
	Line int    // from 1
	Col  int    // from 1, counted in characters
}

// String is file:line:col, the form that editors and terminals can jump to.
func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col) }

// Severity says whether a problem stops a start.
type Severity int

// The severities, from worst to mildest. The zero value is none of them.
const (
	Error   Severity = iota + 1 // validate and start refuse
	Warning                     // validate reports and goes on
)

// Problem is one finding.
type Problem struct {
	At       Position
	Severity Severity
	Code     string   // stable, lower case with hyphens: bad-batch
	What     string   // quotes the author's text and says why it cannot be; no final full stop
	Fix      string   // imperative; empty only when What already says what to do
	Also     Position // a second place that belongs to it (the other of two duplicates), or zero
	More     int      // how many further problems it stands for, which are left out; it says so
}

// Kind is what all problems of one code have in common.
type Kind struct {
	Code     string
	Severity Severity
	Means    string // one sentence for a reader who never saw the code: what is found, and why it matters
}

// String is the problem as a terminal shows it: one line, and an indented fix.
func (p Problem) String() string {
	var b strings.Builder
	if p.Severity == Warning {
		fmt.Fprintf(&b, "%s: warning: %s [%s]", p.At, p.What, p.Code)
	} else {
		fmt.Fprintf(&b, "%s: %s [%s]", p.At, p.What, p.Code)
	}
	if p.Also.Line > 0 {
		fmt.Fprintf(&b, "\n    see: %s", p.Also)
	}
	if p.Fix != "" {
		fmt.Fprintf(&b, "\n    fix: %s", p.Fix)
	}
	return b.String()
}

// List is the problems of one run. As an error it prints all of them, sorted.
type List []Problem

// Error prints every problem, one after the other, in the order of Sort.
func (l List) Error() string {
	sorted := slices.Clone(l)
	sorted.Sort()
	lines := make([]string, len(sorted))
	for i, p := range sorted {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Sort orders by file, position, code and text, so that two runs over the same input print the same.
func (l List) Sort() {
	slices.SortStableFunc(l, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.At.File, b.At.File),
			cmp.Compare(a.At.Line, b.At.Line),
			cmp.Compare(a.At.Col, b.At.Col),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.What, b.What),
		)
	})
}

// Errors reports how many of the problems stop a start.
func (l List) Errors() int {
	n := 0
	for _, p := range l {
		if p.Severity == Error {
			n++
		}
	}
	return n
}

// Err is the list as an error when it holds at least one that stops a start, else nil.
func (l List) Err() error {
	if l.Errors() == 0 {
		return nil
	}
	return l
}

// Nearest is the candidate that a person most likely meant by word, or "" when none is near. It compares
// without regard to case and allows one edit for each three letters, at least one.
func Nearest(word string, candidates []string) string {
	best, bestDistance := "", len([]rune(word))/3+1
	lower := strings.ToLower(word)
	for _, candidate := range candidates {
		d := distance(lower, strings.ToLower(candidate))
		if d < bestDistance || (d == bestDistance && (best == "" || candidate < best)) {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// distance counts the edits between two words; a swap of neighbours, the most common slip of the hand,
// is one edit.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(x)][len(y)]
}
