// SPDX-License-Identifier: Apache-2.0

package finalize

import (
	"example.com/bothy/engine/restore"
	"example.com/bothy/engine/round"
)

// Details are what the audit keeps of a finalize.
type Details struct {
	EpochFrom    string          `json:"epoch_from"`
	EpochTo      string          `json:"epoch_to"`
	Head         int64           `json:"head"`
	IdentityFrom *Identity       `json:"identity_from"` // null when none was stored
	IdentityTo   Identity        `json:"identity_to"`
	Forced       bool            `json:"forced,omitempty"`
	Abandoned    *restore.Range  `json:"abandoned,omitempty"` // from the lowest cursor to the head
	Cursors      []restore.Moved `json:"cursors,omitempty"`
	Repaired     []restore.Flaw  `json:"repaired,omitempty"`
	JobsRule     string          `json:"jobs_rule,omitempty"`
	Jobs         []JobsOf        `json:"jobs,omitempty"`
	LetGo        int64           `json:"quarantine_let_go,omitempty"` // events above the head
	Environment  string          `json:"environment,omitempty"`       // when it changed
	By           string          `json:"by,omitempty"`
}

// JobsOf are the settled jobs of one kind, counted by state.
type JobsOf = restore.JobCount

// Identity is an identity in the audit. The system identifier is a text: it does not fit into the numbers of
// every JSON reader.
type Identity struct {
	System   int64 `json:"system_identifier,string"`
	Timeline int64 `json:"timeline_id"`
	Database int64 `json:"database_oid,omitempty"`
}

func identityOf(i round.Identity) Identity { return Identity{i.System, i.Timeline, i.Database} }

// details is what the audit keeps of this run.
func (b *bound) details(action string) Details {
	r := b.report
	d := Details{
		EpochFrom: r.EpochFrom, EpochTo: r.EpochTo, Head: r.State.Head(), IdentityTo: identityOf(r.State.Current),
		Environment: r.Environment, By: b.o.By,
	}
	if r.State.Stored.Known() {
		from := identityOf(r.State.Stored)
		d.IdentityFrom = &from
	}
	if action == actionRelocated {
		return d
	}
	d.Forced, d.Repaired, d.Jobs, d.JobsRule = b.o.Force, r.Flaws, r.Jobs, string(b.o.Jobs)
	d.LetGo = r.State.Aside.Above
	for _, m := range r.Moved {
		if m.Rows > 0 {
			d.Cursors = append(d.Cursors, m)
		}
	}
	d.Abandoned = Abandoned(r.Moved)
	return d
}

// Abandoned are the numbers that at least one moved cursor skips, or nil.
func Abandoned(moved []restore.Moved) *restore.Range {
	var all *restore.Range
	for _, m := range moved {
		if m.Passed != nil && (all == nil || m.Passed.First < all.First) {
			r := *m.Passed
			all = &r
		}
	}
	return all
}
