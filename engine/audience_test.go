// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
	core "example.com/bothy/engine/round"
)

// audiences are how many recipients each event of the next round is read with, by its number.
func audiences(t *testing.T, e *engine.Engine) (read []int, whole int64) {
	t.Helper()
	err := e.Store().Round(t.Context(), engine.Consumers(e.Config())[0], func(ctx context.Context, tx *postgres.Tx) bool {
		if lock, _, err := tx.Lock(ctx); err != nil || lock != core.Held {
			t.Fatalf("Lock = %v, %v", lock, err)
		}
		snapshot, err := tx.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range snapshot.Events {
			read = append(read, len(event.Audience))
		}
		whole = snapshot.Whole
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	return read, whole
}

// crowd appends events with so many recipients each, whose names have so many characters.
func crowd(t *testing.T, db *enginetest.DB, events, recipients, characters int) {
	t.Helper()
	db.Exec(t, `SELECT bothy.append_event(CASE i % 2 WHEN 1 THEN 'order.created' ELSE 'order.paid' END, 'order', i::text,
	(SELECT array_agg(lpad(n::text, $3, 'x') ORDER BY n) FROM generate_series(1, $2) n), '{}') FROM generate_series(1, $1) i`, events, recipients, characters)
}

// A batch of events with large audiences is not read whole to be thrown away: a round reads what fits into it.
func TestAudiencesThatDoNotFitAreNotRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		events, recipients, characters int
		extra                          string
		read                           []int
		whole                          int64
	}{
		"all fit":                {3, 5, 8, ", max_jobs_per_round: 20", []int{5, 5, 5}, 0},
		"too many jobs":          {5, 5, 8, ", max_jobs_per_round: 7", []int{5, 5, 0, 0, 0}, 2},
		"one has too many":       {3, 5, 8, ", max_jobs_per_round: 1", []int{5, 0, 0}, 1},
		"too many bytes, packed": {5, 2000, 1000, "", []int{2000, 2000, 2000, 0, 0}, 3},
		"nobody":                 {3, 0, 8, ", max_jobs_per_round: 1", []int{0, 0, 0}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, db := prepared(t, entry{name: "push", batch: 100, recipients: "{field: audience}", extra: tt.extra})
			crowd(t, db, tt.events, tt.recipients, tt.characters)
			read, whole := audiences(t, e)
			if diff := cmp.Diff(tt.read, read); diff != "" || whole != tt.whole {
				t.Errorf("recipients read (-want +got):\n%swhole through %d, want %d", diff, whole, tt.whole)
			}
			events := tt.events
			if tt.whole != 0 {
				events = int(tt.whole)
			}
			if o := wantRound(t, e, "push", "processed"); o.Events != events || o.Jobs != events*tt.recipients || o.Full != (tt.whole != 0) {
				t.Errorf("%d events, %d jobs, full %v, want %d events and all of their jobs", o.Events, o.Jobs, o.Full, events)
			}
		})
	}
}

// Events that types leave out are passed too, though nobody needs their audiences, and each of the others makes its
// jobs exactly once.
func TestAudiencesInPartsLoseNothing(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push", batch: 100, recipients: "{field: audience}", extra: ", max_jobs_per_round: 7, types: [order.paid]"})
	crowd(t, db, 20, 5, 8)
	jobs, rounds := 0, 0
	for at := cursorOf(t, db, "push"); at < 20; at = cursorOf(t, db, "push") {
		o := wantRound(t, e, "push", "processed")
		jobs += o.Jobs
		rounds++
	}
	if jobs != 50 || rounds != 10 {
		t.Errorf("%d jobs in %d rounds, want 50 in 10", jobs, rounds)
	}
}
