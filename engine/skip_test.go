// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
)

// The operator's way on after a hole that is proven: the cursor passes exactly the hole, once, and it is kept who
// did that and why. Every event around it has its jobs once.
func TestSkipMovesAConsumerOverAHole(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	e, db := prepared(t, push)
	db.Append(t, 4)
	wantRound(t, e, "push", "processed")
	db.Append(t, 6)
	db.Exec(t, `DELETE FROM bothy.event_log WHERE seq BETWEEN 5 AND 7`)
	wantRound(t, e, "push", "gap")
	cfg := declare(t, db, push)

	dry, err := engine.SkipConsumer(t.Context(), cfg, "push", 5, 7, "lost", engine.ChangeOptions{DryRun: true})
	if err != nil || dry.Deed != 0 || dry.Next != 8 || *dry.LastSeq != 4 || cursorOf(t, db, "push") != 4 {
		t.Fatalf("dry run: %+v, %v, cursor %d; want the next event 8 and nothing done", dry, err, cursorOf(t, db, "push"))
	}
	// two people at once: one does it, the other finds nothing to do
	var wait sync.WaitGroup
	results := make([]engine.Skip, 2)
	for i := range results {
		wait.Go(func() {
			var err error
			if results[i], err = engine.SkipConsumer(t.Context(), cfg, "push", 5, 7, "lost with a disk", engine.ChangeOptions{By: "alex"}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if done := results[0].Deed + results[1].Deed; done != 2 || !strings.Contains(results[0].Note+results[1].Note, "nothing to do: consumer \"push\" was moved over the numbers 5 to 7") {
		t.Errorf("two skips at once: %+v, want one deed with the number 2 and one with nothing to do", results)
	}
	var row string
	err = admin(t, db).QueryRow(t.Context(), `SELECT concat_ws(' ', action, subject, client, details) FROM bothy.audit_events WHERE seq = 2`).Scan(&row)
	if want := `consumer.skipped push bothy-consumers {"by": "alex", "head": 10, "last": 7, "first": 5, "reason": "lost with a disk", "last_seq": 4}`; err != nil || row != want {
		t.Errorf("audit: %s, %v; want %s", row, err, want)
	}

	wantRound(t, e, "push", "processed")
	wantJobs(t, db, "push", "1 alex", "1 sam", "2 alex", "2 sam", "3 alex", "3 sam", "4 alex", "4 sam",
		"8 alex", "8 sam", "9 alex", "9 sam", "10 alex", "10 sam")
	wantFate(t, why(t, e, 6, engine.WhyOptions{}), "push", engine.VerdictSkipped, "the event is missing from the log", "(audit 2): lost with a disk")
}

// What is not a hole right before the cursor is not skipped, and nothing changes.
func TestSkipRefusals(t *testing.T) {
	t.Parallel()
	push, late := entry{name: "push"}, entry{name: "late"}
	e, db := prepared(t, push, late)
	db.Append(t, 4)
	wantRound(t, e, "push", "processed")
	db.Append(t, 6)
	db.Exec(t, `DELETE FROM bothy.event_log WHERE seq BETWEEN 5 AND 7`)
	cfg := declare(t, db, push, late)
	refused := func(name string, first, last int64, reason string, parts ...string) {
		t.Helper()
		for _, dry := range []bool{true, false} {
			_, err := engine.SkipConsumer(t.Context(), cfg, name, first, last, reason, engine.ChangeOptions{DryRun: dry})
			wantRefusal(t, err, parts...)
		}
	}
	refused("push", 5, 8, "lost", `consumer "push" cannot skip 5 to 8: the log holds 1 events of this range`)
	refused("push", 6, 7, "lost", "its cursor is at 4, so a hole that it stands before begins at 5")
	refused("late", 5, 7, "lost", "its cursor is at 0")
	refused("late", 1, 4, "lost", "the log holds 4 events of this range")
	refused("push", 5, 11, "lost", "the head is 10, so event 11 is not missing: it has not happened yet")
	refused("push", 5, 7, "", "for a reason")
	refused("push", 7, 5, "lost", "are no range")
	refused("push", 0, 5, "lost", "are no range")
	refused("pusch", 5, 7, "lost", `consumer "pusch" has no cursor (did you mean "push"?)`)
	if push, late := cursorOf(t, db, "push"), cursorOf(t, db, "late"); push != 4 || late != 0 {
		t.Errorf("the cursors are at %d and %d, want 4 and 0", push, late)
	}
	db.Exec(t, `DELETE FROM bothy.event_log WHERE seq <= 4`)
	refused("late", 1, 7, "lost", "retention removed them, since the log begins at 8")
	wantRound(t, e, "late", "lost")

	// a log that lost everything above the cursor is a hole as well
	db.Exec(t, `DELETE FROM bothy.event_log`)
	wantRound(t, e, "push", "gap")
	if skip, err := engine.SkipConsumer(t.Context(), cfg, "push", 5, 10, "all of it", engine.ChangeOptions{}); err != nil || skip.Next != 0 {
		t.Errorf("skip of an empty log: %+v, %v", skip, err)
	}
	db.Append(t, 1)
	wantRound(t, e, "push", "processed")
	wantJobs(t, db, "push", "1 alex", "1 sam", "2 alex", "2 sam", "3 alex", "3 sam", "4 alex", "4 sam", "11 alex", "11 sam")
}

// wantJobs compares all jobs of a consumer, as number and recipient.
func wantJobs(t testing.TB, db *enginetest.DB, name string, want ...string) {
	t.Helper()
	var got []string
	for _, j := range jobsOf(t, db, name) {
		got = append(got, strings.Trim(fmt.Sprint(j), "{}"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("jobs of %s (-want +got):\n%s", name, diff)
	}
}
