// SPDX-License-Identifier: Apache-2.0

// Package round is the pure core of the engine: what was read goes in, what is to be done comes out.
// It does no IO, reads no clock and knows no table, no YAML and no SQL.
//
//	Snapshot --Answer--> some | none | vanished | ahead | unfinalized
//	Snapshot --Plan----> Plan (contiguous | expired) or ErrConsumerGap
//	Plan, []Event -----> the events a rule sees (Types), the targets it gave (Unique, Cut)
package round

import (
	"encoding/json"
	"fmt"
	"time"
)

// Event is one row of the log. A consumer reads only the columns that its recipient rule needs; the
// others are zero.
type Event struct {
	Seq        int64
	ID         string // a UUID
	Type       string
	Resource   string
	ResourceID string
	Audience   []string
	Payload    json.RawMessage
	OccurredAt time.Time // the server's clock when the event was numbered
	EventTime  time.Time // the producer's, zero when it gave none
	// Traceparent is the trace that the producer gave the event, as W3C Trace Context writes it; empty when it gave
	// none. It is read for every rule.
	Traceparent string
}

// Target is one job to be: an event and who it is for. Recipient is empty under the rule none.
type Target struct {
	Seq       int64
	Recipient string
}

// Jobs are what a round inserts: one job per target.
type Jobs struct {
	Epoch   string // stamped on each
	Targets []Target
	Traces  map[int64]string // traceparents by the numbers of events; each job carries that of its event
}

// Identity names the database cluster, the history it is on and the database in it. The zero value means not known.
type Identity struct {
	System   int64 // pg_control_system().system_identifier
	Timeline int64 // of the write-ahead log being written now
	Database int64 // pg_database.oid; 0 when it is not known, which an older installation may not have stored
}

// Same reports whether the two are one, as far as both are known.
func (i Identity) Same(o Identity) bool {
	return i.System == o.System && i.Timeline == o.Timeline && (i.Database == o.Database || i.Database == 0 || o.Database == 0)
}

// Known reports whether server and history were read.
func (i Identity) Known() bool { return i.System != 0 && i.Timeline != 0 }

func (i Identity) String() string {
	if i.System < 0 {
		return "a server that nobody knows any more"
	}
	text := fmt.Sprintf("system %d, timeline %d", i.System, i.Timeline)
	if i.Database != 0 {
		text += fmt.Sprintf(", database %d", i.Database)
	}
	return text
}

// Snapshot is what one statement saw of the log, for one consumer.
type Snapshot struct {
	Cursor  int64    // last_seq of the consumer
	Head    int64    // the counter row: the highest committed number
	Room    int64    // how many numbers above Head have a partition, as far as producers know
	Floor   int64    // the lowest number the log holds; 0 when it was not read or the log is empty
	Epoch   string   // sync_epoch, a UUID: stamped on every job of the round
	Stored  Identity // what the instance row says; not Known on a new installation
	Current Identity // what the server says now
	Guarded bool     // compare the two (database.restore_guard is on)
	// Whole is the last event that was read with everything that the rule looks at; the round goes no further. 0
	// when all were. The first event always is.
	Whole  int64
	Events []Event // numbers above Cursor, rising
}

// Contiguous reports whether the events run without a hole from Cursor+1 to min(Head, Cursor+batch). Only
// then is the one bounded read enough; otherwise the floor decides, and everything is read again.
func (s Snapshot) Contiguous(batch int) bool {
	want := min(s.Head, s.Cursor+int64(batch)) - s.Cursor
	if int64(len(s.Events)) != want {
		return false
	}
	for i, e := range s.Events {
		if e.Seq != s.Cursor+1+int64(i) {
			return false
		}
	}
	return true
}

// Reading is what a snapshot means for the round, before anything is planned.
type Reading string

// The readings; the answers of the step read_events.
const (
	Some        Reading = "some"        // events to plan
	None        Reading = "none"        // the cursor is at the head
	Vanished    Reading = "vanished"    // the head is above the cursor and the log holds nothing
	Ahead       Reading = "ahead"       // the cursor is above the head: two histories were mixed
	Unfinalized Reading = "unfinalized" // the database is not the one whose history the cursors follow
)

// Reading says what the snapshot means. An identity that differs comes first: nothing else in a database
// that went back in time can be trusted.
func (s Snapshot) Reading() Reading {
	switch {
	case s.Guarded && s.Stored.Known() && s.Current.Known() && !s.Stored.Same(s.Current):
		return Unfinalized
	case s.Cursor > s.Head:
		return Ahead
	case len(s.Events) > 0:
		return Some
	case s.Head > s.Cursor:
		return Vanished
	default:
		return None
	}
}

// Traces are the traceparents of the events, by their numbers; nil when no event has one.
func (s Snapshot) Traces() map[int64]string {
	var traces map[int64]string
	for _, e := range s.Events {
		if e.Traceparent == "" {
			continue
		}
		if traces == nil {
			traces = map[int64]string{}
		}
		traces[e.Seq] = e.Traceparent
	}
	return traces
}

// Plan plans the events of the snapshot. A number above the head was not given out by the counter: it
// is a hole like any other.
func (s Snapshot) Plan() (Plan, error) {
	seqs := make([]int64, len(s.Events))
	for i, e := range s.Events {
		seqs[i] = e.Seq
	}
	if n := len(seqs); n > 0 && seqs[n-1] > s.Head {
		return Plan{}, fmt.Errorf("%w: %d is above the head %d", ErrConsumerGap, seqs[n-1], s.Head)
	}
	return PlanRound(s.Cursor, seqs, s.Floor)
}

// Lock is what became of a consumer's cursor row. Its values are the answers of the step lock_cursor.
type Lock string

// The outcomes of locking a cursor row.
const (
	Held    Lock = "held"    // this round has it
	Taken   Lock = "taken"   // another worker's round has it
	Quiet   Lock = "quiet"   // nobody needs it: the cursor is at the head
	Missing Lock = "missing" // there is no such row
)
