// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"fmt"

	"example.com/bothy/engine/round"
)

// State is a database as finalizing sees it, all of one moment.
type State struct {
	Stored      round.Identity // whose history the cursors follow; zero when not stored
	Current     round.Identity // what the server says now; zero when it could not be read
	Environment string         // the label that the database holds
	Epoch       string
	Counter     *int64   // the counter of the event log; nil when its row is missing
	Highest     int64    // the highest number in the log; 0 when it is empty
	HeadEvent   string   // the id of the event with the highest number; empty when there is none
	Cursors     []Cursor // every table of cursors, those of the engine first
	Audit       Audit
	Aside       Aside
}

// Aside are the events that are in quarantine.
type Aside struct {
	Above int64 `json:"above_head"` // they are let go: other events get their numbers
	Stay  int64 `json:"stay"`       // what became of them in a history that is gone, the database does not know
}

// Audit is the newest row of the audit.
type Audit struct {
	Seq  int64
	Hash []byte // nil while the rows have none
	Flaw string // in words, when its counter and its newest row do not fit together; else empty
}

// Cursor is where the cursors of one table stand. Those of consumers are named one by one.
type Cursor struct {
	Table  string     `json:"table"`
	Column string     `json:"column"`
	Rows   int64      `json:"rows"`
	Lowest *int64     `json:"lowest"` // nil when there is no row
	Top    *int64     `json:"highest"`
	Behind int64      `json:"behind"` // rows below the head
	Ahead  int64      `json:"ahead"`  // rows above it
	Named  []Position `json:"named,omitempty"`
}

// Position is one cursor by its name.
type Position struct {
	Name string `json:"name"`
	Seq  int64  `json:"seq"`
}

// Range is a run of numbers, both ends included.
type Range struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// Count is how many numbers it holds.
func (r Range) Count() int64 { return max(0, r.Last-r.First+1) }

// FlawKind says what a partial restore left apart.
type FlawKind string

// The flaws.
const (
	CounterMissing FlawKind = "counter_missing" // the counter row is not there: Range is what the counter becomes
	CounterBehind  FlawKind = "counter_behind"  // the log holds numbers that the counter has not given
	CounterAhead   FlawKind = "counter_ahead"   // the counter has given numbers that the log does not hold, up to the head
	CursorAhead    FlawKind = "cursor_ahead"    // a cursor stands above the head
)

// Flaw is one thing that does not fit together, and the numbers that it concerns.
type Flaw struct {
	Kind  FlawKind `json:"kind"`
	Range Range    `json:"range"`
	Table string   `json:"table,omitempty"` // of a cursor
	Name  string   `json:"name,omitempty"`  // of the cursor, where it has one
}

func (f Flaw) String() string {
	switch f.Kind {
	case CounterMissing:
		return fmt.Sprintf("the counter row of the event log is missing: the highest number that anything knows is %d", f.Range.Last)
	case CounterBehind:
		return fmt.Sprintf("the counter stands at %d and the event log holds numbers up to %d", f.Range.First-1, f.Range.Last)
	case CounterAhead:
		return fmt.Sprintf("the event log ends in a hole: it lacks %d to %d, which the counter has given", f.Range.First, f.Range.Last)
	case CursorAhead:
		of := "a cursor of " + f.Table
		if f.Name != "" {
			of = fmt.Sprintf("the cursor of consumer %q", f.Name)
		}
		return fmt.Sprintf("%s stands at %d, above the head %d", of, f.Range.Last, f.Range.First-1)
	default:
		return string(f.Kind)
	}
}

// Head is the head of the log once the counter is right: never below a number that the log holds. A counter that
// is gone is set above every number that the log and the consumers know, so that none of them is given again.
func (s State) Head() int64 {
	if s.Counter != nil {
		return max(*s.Counter, s.Highest)
	}
	head := s.Highest
	for _, c := range s.Cursors[:min(len(s.Cursors), 1)] { // those of the consumers
		if c.Top != nil {
			head = max(head, *c.Top)
		}
	}
	return head
}

// CounterOff reports whether the counter itself has to be set: it is missing, or behind its log.
func (s State) CounterOff() bool { return s.Counter == nil || *s.Counter < s.Highest }

// Flaws are what does not fit together, whichever identity the database has. A hole up to the head counts only
// while a cursor has still to pass it.
func (s State) Flaws() []Flaw {
	var flaws []Flaw
	head := s.Head()
	switch {
	case s.Counter == nil:
		flaws = append(flaws, Flaw{Kind: CounterMissing, Range: Range{head, head}})
	case *s.Counter < s.Highest:
		flaws = append(flaws, Flaw{Kind: CounterBehind, Range: Range{*s.Counter + 1, s.Highest}})
	case *s.Counter > s.Highest && s.waits():
		flaws = append(flaws, Flaw{Kind: CounterAhead, Range: Range{s.Highest + 1, *s.Counter}})
	}
	for _, c := range s.Cursors {
		if c.Top == nil || *c.Top <= head {
			continue
		}
		named := 0
		for _, p := range c.Named {
			if p.Seq > head {
				named++
				flaws = append(flaws, Flaw{Kind: CursorAhead, Range: Range{head + 1, p.Seq}, Table: c.Table, Name: p.Name})
			}
		}
		if named == 0 {
			flaws = append(flaws, Flaw{Kind: CursorAhead, Range: Range{head + 1, *c.Top}, Table: c.Table})
		}
	}
	return flaws
}

// waits reports whether a cursor of the engine's own has still to come to the head.
func (s State) waits() bool {
	for _, c := range s.Cursors {
		if len(c.Named) > 0 && c.Lowest != nil && *c.Lowest < s.Head() {
			return true
		}
	}
	return false
}

// Abandoned are the numbers that some cursor has not passed and, after finalizing, never will: from the lowest
// cursor to the head. ok is false when there is none.
func (s State) Abandoned() (r Range, ok bool) {
	head := s.Head()
	for _, c := range s.Cursors {
		if c.Lowest != nil && *c.Lowest < head && (!ok || *c.Lowest+1 < r.First) {
			r, ok = Range{*c.Lowest + 1, head}, true
		}
	}
	return r, ok
}
