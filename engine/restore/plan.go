// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"fmt"
	"time"
)

// Session is another connection that could see half of the change, or add to the history that is left.
type Session struct {
	PID         int64     `json:"pid"`
	Role        string    `json:"role"`
	Application string    `json:"application"` // what the program calls itself; empty when it says nothing or may not be seen
	Address     string    `json:"address"`     // of the client; empty on a socket, or when it may not be seen
	Since       time.Time `json:"since"`       // zero when it may not be seen
	Engine      bool      `json:"engine"`      // it holds the lock of a running engine
}

func (s Session) String() string {
	text := fmt.Sprintf("pid %d, role %s", s.PID, s.Role)
	if s.Application != "" {
		text += fmt.Sprintf(", application %q", s.Application)
	}
	if s.Address != "" {
		text += ", from " + s.Address
	} else {
		text += ", local or not visible"
	}
	if s.Engine {
		text += ", a running engine"
	}
	return text
}

// Moved is what became of the cursors of one table.
type Moved struct {
	Table  string  `json:"table"`
	Column string  `json:"column"`
	Rows   int64   `json:"rows"` // that changed
	To     int64   `json:"to"`
	Behind int64   `json:"behind"`           // of those, how many stood below the head and skip events
	Ahead  int64   `json:"ahead"`            // how many stood above it
	Passed *Range  `json:"passed,omitempty"` // the numbers that at least one of them skips
	Named  []Named `json:"named,omitempty"`  // those of consumers, by name
}

// Named is one cursor of a consumer that moved.
type Named struct {
	Name   string `json:"name"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	Events int64  `json:"events"` // that it skips
}

// JobCount counts restored jobs that the engine made in an epoch that ends.
type JobCount struct {
	Kind  string `json:"kind"`
	State string `json:"state"`
	Count int64  `json:"count"`
}

// JobsRule says what becomes of restored jobs that are not finished.
type JobsRule string

// The rules.
const (
	// CancelJobs cancels them: their events lie before the restore point, and a worker may have done the work
	// after it, in the history that is gone. Doing it again is what a restore must not do on its own.
	CancelJobs JobsRule = "cancel"
	// KeepJobs leaves them: workers that compare the epoch of a job decide.
	KeepJobs JobsRule = "keep"
)

// MoveOf is what moving the cursors of a table to the head does.
func MoveOf(c Cursor, head int64) Moved {
	m := Moved{Table: c.Table, Column: c.Column, To: head, Rows: c.Behind + c.Ahead, Behind: c.Behind, Ahead: c.Ahead}
	for _, p := range c.Named {
		if p.Seq == head {
			continue
		}
		m.Named = append(m.Named, Named{p.Name, p.Seq, head, max(0, head-p.Seq)})
	}
	if c.Lowest != nil && *c.Lowest < head {
		m.Passed = &Range{*c.Lowest + 1, head}
	}
	return m
}
