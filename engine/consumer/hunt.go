// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"errors"

	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/round"
)

// Numbers are a run of events, both ends included. The zero value is none.
type Numbers struct{ First, Last int64 }

// hunt looks for the event that makes the rounds of a consumer fail. Once as many rounds in a row have failed on
// their events as the consumer declares, each further failure halves the batch, until an event has failed
// alone: the next round may then set this event aside, and no other one.
//
//	failed, failed, ... after times -> a half -> ... -> one event alone -> a round with that Suspect
//
// What is no fault of an event (the connection, a timeout, rights, a full disk, a shutdown) ends the hunt: such a
// consumer stands still until that is over, whatever it declares.
type hunt struct {
	after    int   // failures in a row before it begins; 0: never
	failures int   // in a row, of rounds over the same events
	through  int64 // the last event of the batch that failed last; 0: none has
	suspect  round.Suspect
}

// open reports whether events have failed that no round has passed since.
func (h *hunt) open() bool { return h.through > 0 }

// record takes note of a round, and reports whether the next one is to follow at once.
func (h *hunt) record(o Outcome, b *batch) (again bool) {
	if h.after == 0 || o.End.Next == machine.Stop {
		return false
	}
	if o.Blamed == (Numbers{}) {
		// another worker may have the row, and this one does not know yet what comes of that
		if passed := o.passed(); passed >= h.through || !o.committed() && o.End.Name != endLocked {
			*h = hunt{after: h.after}
		}
		return false
	}
	if o.Cursor >= h.through {
		h.failures = 0 // these are other events
	}
	h.failures++
	h.through, h.suspect = o.Blamed.Last, round.Suspect{}
	if h.failures < h.after {
		return false
	}
	many := o.Blamed.Last - o.Blamed.First + 1
	b.cut(int(max(1, many/2)))
	if many == 1 {
		h.suspect = round.Suspect{Seq: o.Blamed.First, Attempts: h.failures + 1}
	}
	return true
}

// committed reports whether the round moved the cursor.
func (o Outcome) committed() bool { return o.End.Transaction == machine.Commit }

// passed is the last event that the cursor has passed after the round, as far as it saw.
func (o Outcome) passed() int64 {
	if o.committed() {
		return o.First + int64(o.Events) - 1
	}
	return o.Cursor
}

// cut makes the batch at most n events.
func (b *batch) cut(n int) {
	if n < b.now {
		b.now, b.wins, b.trying = n, 0, false
	}
}

// faultOf says in words that hold nothing of an event what a rule did, when its error belongs to an event.
func faultOf(err error) (message string, ok bool) {
	if _, ok := errors.AsType[*machine.PanicError](err); ok {
		return "the rule panicked", true
	}
	if fault, ok := errors.AsType[interface {
		error
		EventFault() (message string, ok bool)
	}](err); ok {
		return fault.EventFault()
	}
	return "", false
}
