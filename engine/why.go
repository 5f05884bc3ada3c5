// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/round"
)

// Presence says whether the log holds an event.
type Presence string

// The presences of an event.
const (
	PresenceRetained Presence = "retained" // the log holds it
	PresenceAhead    Presence = "ahead"    // no event has had this number yet
	PresenceRemoved  Presence = "removed"  // retention removed it: the log begins above it
	PresenceHole     Presence = "hole"     // the log should hold it and does not: damage
)

// Verdict is what became of an event at one consumer.
type Verdict string

// The verdicts.
const (
	VerdictCreated     Verdict = "created"      // its jobs are there
	VerdictWaiting     Verdict = "waiting"      // not reached yet
	VerdictTypes       Verdict = "types"        // the consumer is not for events of this type
	VerdictNobody      Verdict = "nobody"       // the rule gives no recipient
	VerdictBeforeStart Verdict = "before_start" // the consumer began later
	VerdictRestored    Verdict = "restored"     // a restore was finalized after it: its history ended
	VerdictNoCursor    Verdict = "no_cursor"    // it never ran, and will begin later
	VerdictLost        Verdict = "lost"         // retention removed the event before the consumer reached it
	VerdictSkipped     Verdict = "skipped"      // the event is missing, and an operator moved the consumer over it
	VerdictQuarantined Verdict = "quarantined"  // the consumer has set the event aside
	VerdictDropped     Verdict = "dropped"      // it had, and an operator gave the event up
	VerdictUnknown     Verdict = "unknown"      // passed, and what would tell is not there (any more)
	VerdictHandler     Verdict = "handler"      // only the handler could tell, and it is not asked
	VerdictGone        Verdict = "gone"         // old enough for River to have deleted its finished jobs
	VerdictChanged     Verdict = "changed"      // the rule reads tables, which may have been others then
	VerdictMissing     Verdict = "missing"      // jobs should be there, and nothing explains that they are not
	VerdictRuleFails   Verdict = "rule_fails"   // the rule cannot be run over the event
)

// Explanation is what became of one event.
type Explanation struct {
	Seq       int64           `json:"seq"`
	Presence  Presence        `json:"presence"`
	Head      int64           `json:"head"`
	Floor     int64           `json:"floor"` // the lowest number that the log holds; 0 when it is empty
	Epoch     string          `json:"epoch"`
	Event     *ExplainedEvent `json:"event"`     // null unless it is retained
	Consumers []Fate          `json:"consumers"` // in the order of the file
	// Others are jobs of the event under tags that no explained consumer has: of consumers that are declared
	// no more, or of an older epoch.
	Others []ExplainedJobs `json:"others"`
}

// Sound reports whether the event is there and nothing about it is unexplained.
func (e Explanation) Sound() bool {
	return e.Presence == PresenceRetained && !slices.ContainsFunc(e.Consumers, func(f Fate) bool { return f.Verdict == VerdictMissing })
}

// ExplainedEvent is the event. The payload is there only when it was asked for.
type ExplainedEvent struct {
	ID         string     `json:"id"`
	Type       string     `json:"type"`
	Resource   string     `json:"resource"`
	ResourceID string     `json:"resource_id"`
	Audience   []string   `json:"audience"`
	OccurredAt time.Time  `json:"occurred_at"`
	EventTime  *time.Time `json:"event_time,omitempty"`
	// Traceparent is the trace that the producer gave.
	Traceparent string          `json:"traceparent,omitempty"`
	Payload     json.RawMessage `json:"payload,omitempty"`
}

// Fate is what became of the event at one consumer.
type Fate struct {
	Consumer string  `json:"consumer"`
	Verdict  Verdict `json:"verdict"`
	Reason   string  `json:"reason,omitempty"` // in words; empty when the jobs are there
	Cursor   *int64  `json:"cursor"`
	// Jobs are those of the present epoch, Older those of epochs before a restore.
	Jobs  *ExplainedJobs  `json:"jobs,omitempty"`
	Older []ExplainedJobs `json:"older,omitempty"`
	// Would are the jobs that the rule gives now, when none are there.
	Would *WouldBe `json:"would,omitempty"`
}

// ExplainedJobs are the jobs under one tag and of one epoch.
type ExplainedJobs struct {
	Tag   string         `json:"tag"`
	Epoch string         `json:"epoch"`
	Count int64          `json:"count"`
	Jobs  []ExplainedJob `json:"jobs"` // the first ten, or all
}

// ExplainedJob is one job of River's.
type ExplainedJob struct {
	ID          int64  `json:"id"`
	Kind        string `json:"kind"`
	Queue       string `json:"queue"`
	Recipient   string `json:"recipient"`
	State       string `json:"state"`
	Attempt     int    `json:"attempt"`
	MaxAttempts int    `json:"max_attempts"`
}

// WouldBe are jobs that a round would insert now.
type WouldBe struct {
	Kind       string   `json:"kind"`
	Queue      string   `json:"queue"`
	Count      int      `json:"count"`
	Recipients []string `json:"recipients"` // the first ten, or all
}

// few is how many jobs and recipients of a consumer an explanation lists unless all are asked for.
const few = 10

// WhyOptions say what an explanation is to hold.
type WhyOptions struct {
	Consumer string // only this one; empty: all that are declared
	All      bool   // list every job and recipient, not only the first ten
	Payload  bool   // include the payload of the event
}

// Why explains one event: which consumers made which jobs of it, and why others made none. It changes
// nothing: query rules run read only and are rolled back, and handlers are not called.
func (e *Engine) Why(ctx context.Context, seq int64, o WhyOptions) (Explanation, error) {
	if seq < 1 {
		return Explanation{}, fmt.Errorf("there is no event %d: the numbers begin at 1", seq)
	}
	consumers := Consumers(e.config)
	if o.Consumer != "" {
		consumers = slices.DeleteFunc(consumers, func(c round.Consumer) bool { return c.Name != o.Consumer })
		if len(consumers) == 0 {
			return Explanation{}, fmt.Errorf("consumer %q is not declared in %s%s", o.Consumer, e.config.File(), hint(o.Consumer, e.config.Names()))
		}
	}
	most := few
	if o.All {
		most = int(^uint(0) >> 1)
	}
	var result Explanation
	err := e.store.Inquire(ctx, e.config.Jobs.Schema, seq, most, func(ctx context.Context, q *postgres.Inquiry) (err error) {
		x := explaining{q: q, seq: seq, most: most, lives: lives(q.Deeds), claimed: map[int]bool{}}
		result, err = x.explain(ctx, consumers, o.Payload)
		if o.Consumer != "" {
			result.Others = nil
		}
		return err
	})
	return result, err
}
