// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// setAside is an engine whose consumer push has set some of ten events aside.
func setAside(t *testing.T, seqs ...int64) (*engine.Engine, *enginetest.DB, entry) {
	t.Helper()
	push := entry{name: "push", recipients: brittle, extra: aside, batch: 10}
	db := breakable(t, push)
	for _, seq := range seqs {
		db.Exec(t, `INSERT INTO public.broken VALUES ($1)`, seq)
	}
	running := open(t, configureWith(t, db.AppURL, quickly, push))
	ensure(t, running)
	db.Append(t, 10)
	stop := runInBackground(t, running)
	waitUntil(t, "the consumer has passed everything", func() bool { return cursorOf(t, db, "push") == 10 })
	stop()
	wantJobs(t, db, "push", without(10, seqs...)...)
	return open(t, configure(t, db, push)), db, push
}

// deeds are those about the quarantine, as text.
func deeds(t testing.TB, db *enginetest.DB) []string {
	t.Helper()
	rows, err := admin(t, db).Query(t.Context(), `SELECT concat_ws(' ', seq, action, subject, client, details) FROM bothy.audit_events WHERE action <> 'consumer.created' ORDER BY seq`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// An event that is retried has its jobs exactly once, however many retry it at once; one on which the rule fails
// again stays; one that is dropped never has any. All of that is in the audit.
func TestQuarantineRetryAndDrop(t *testing.T) {
	t.Parallel()
	e, db, _ := setAside(t, 3, 6)
	_, err := e.RetryQuarantined(t.Context(), "push", 3, "alex")
	wantRefusal(t, err, `retry event 3 of consumer "push": `, "division by zero")
	if got := quarantine(t, e); len(got) != 2 {
		t.Fatalf("quarantine after a retry that failed: %q, want both events", got)
	}

	db.Exec(t, `DELETE FROM public.broken`)
	var wait sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wait.Go(func() {
			done, err := e.RetryQuarantined(t.Context(), "push", 3, "alex")
			if errs[i] = err; err == nil && (done.Jobs != 2 || done.Deed != 2) {
				t.Errorf("retry: %+v, want 2 jobs and deed 2", done)
			}
		})
	}
	wait.Wait()
	second := 0
	for _, err := range errs {
		if _, gone := errors.AsType[*postgres.NotQuarantinedError](err); gone {
			second++
		} else if err != nil {
			t.Error(err)
		}
	}
	if second != 3 {
		t.Errorf("%d of 4 retries at once found nothing, want 3", second)
	}
	wantJobs(t, db, "push", without(10, 6)...)
	wantFate(t, why(t, e, 3, engine.WhyOptions{}), "push", engine.VerdictCreated)

	_, err = e.DropQuarantined(t.Context(), "push", 6, "", "alex")
	wantRefusal(t, err, "for a reason")
	if done, err := e.DropQuarantined(t.Context(), "push", 6, "a test", "alex"); err != nil || done.Deed != 3 {
		t.Errorf("drop: %+v, %v", done, err)
	}
	_, err = e.DropQuarantined(t.Context(), "push", 6, "a test", "alex")
	wantRefusal(t, err, `event 6 of consumer "push" is not in quarantine`)
	wantFate(t, why(t, e, 6, engine.WhyOptions{}), "push", engine.VerdictDropped, "was dropped from quarantine on ", "(audit 3): a test")
	want := []string{
		`2 quarantine.retried push bothy-quarantine {"by": "alex", "seq": 3, "jobs": 2, "error_type": "22012"}`,
		`3 quarantine.dropped push bothy-quarantine {"by": "alex", "seq": 6, "reason": "a test", "error_type": "22012"}`,
	}
	if diff := cmp.Diff(want, deeds(t, db)); diff != "" {
		t.Errorf("audit (-want +got):\n%s", diff)
	}
	if comparisons, err := e.Compare(t.Context(), nil); err != nil || !comparisons[0].Sound() || comparisons[0].Found != 18 {
		t.Errorf("Compare: %+v, %v; want 18 jobs and none missing", comparisons, err)
	}
	if got := quarantine(t, e); len(got) != 0 {
		t.Errorf("quarantine: %q, want nothing", got)
	}
}

// What nobody can decide is refused, and stays.
func TestQuarantineRetryRefusals(t *testing.T) {
	t.Parallel()
	e, db, _ := setAside(t, 3, 6)
	retry := func(consumer string, seq int64, parts ...string) {
		t.Helper()
		_, err := e.RetryQuarantined(t.Context(), consumer, seq, "alex")
		wantRefusal(t, err, parts...)
	}
	db.Exec(t, `DELETE FROM public.broken`)
	retry("pusch", 3, `consumer "pusch" is not declared in consumers.yaml (did you mean "push"?)`)
	retry("push", 4, `event 4 of consumer "push" is not in quarantine`)
	db.Exec(t, `UPDATE bothy.instance SET pg_timeline_id = 99, pg_system_identifier = 7`)
	retry("push", 3, "engine restore finalize")
	db.Exec(t, `UPDATE bothy.instance SET pg_timeline_id = NULL, pg_system_identifier = NULL`)
	db.Exec(t, `UPDATE bothy.event_consumer_cursors SET last_seq = 5`) // the cursor went back: a round will see event 6 again
	retry("push", 6, "the cursor is at 5, so a round will decide the event: drop it here")
	db.Exec(t, `UPDATE bothy.event_consumer_cursors SET last_seq = 10`)
	db.Exec(t, `DELETE FROM bothy.event_log WHERE seq <= 4`)
	retry("push", 3, "the log does not hold the event any more, so nobody can decide it: drop it")
	if got := quarantine(t, e); len(got) != 2 {
		t.Errorf("quarantine: %q, want both events", got)
	}
	wantJobs(t, db, "push", without(10, 3, 6)...)
	if list, err := e.Quarantined(t.Context(), "push"); err != nil || list[0].Type != "" || list[1].Type == "" {
		t.Errorf("the list says %+v (%v), want no type of the event that is gone", list, err)
	}
}

// A round sets aside the event that it knows as the suspect and no other, also when another one fails there: another
// worker may have moved the cursor meanwhile.
func TestQuarantineOnlyOfTheSuspect(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: brittle, extra: aside}
	db := breakable(t, push)
	e := open(t, configure(t, db, push))
	ensure(t, e)
	db.Append(t, 4)
	db.Exec(t, `INSERT INTO public.broken VALUES (1), (2)`)
	for _, suspect := range []int64{2, 4, 9} {
		if o := e.Suspect(t.Context(), "push", suspect); o.End.Name != "failed" || o.Blamed.First != 1 || o.Blamed.Last != 1 {
			t.Errorf("a round over event 1 with the suspect %d ended %s and blames %v, want it failed and event 1 blamed", suspect, o.End.Name, o.Blamed)
		}
	}
	if at := cursorOf(t, db, "push"); at != 0 || len(quarantine(t, e)) != 0 {
		t.Errorf("cursor %d, quarantine %q; want 0 and nothing", at, quarantine(t, e))
	}
	if o := e.Suspect(t.Context(), "push", 1); o.End.Name != "quarantined" || cursorOf(t, db, "push") != 1 {
		t.Errorf("a round over its suspect ended %s (%v)", o.End.Name, o.Err)
	}
	wantJobs(t, db, "push")
}

// The role of the application can take nothing out of the quarantine past the audit.
func TestQuarantineKeepsTheAudit(t *testing.T) {
	t.Parallel()
	_, db, _ := setAside(t, 3)
	app := db.App(t)
	for _, sql := range []string{
		`DELETE FROM bothy.event_quarantine`, `UPDATE bothy.event_quarantine SET seq = 4`, `TRUNCATE bothy.event_quarantine`,
		`SELECT bothy.settle_quarantined('push', 3, 'consumer.created', '{}')`, `SELECT bothy.settle_quarantined('push', 4, 'quarantine.dropped', '{}')`,
		`SELECT bothy.settle_quarantined(NULL, NULL, NULL, NULL)`,
	} {
		if _, err := app.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: went well, want it refused", sql)
		}
	}
	if got := deeds(t, db); len(got) != 0 {
		t.Errorf("audit: %q, want nothing", got)
	}
}

// What is set aside follows its consumer under a new name, and goes with one that is retired, counted.
func TestQuarantineFollowsItsConsumer(t *testing.T) {
	t.Parallel()
	_, db, push := setAside(t, 3, 6)
	db.Exec(t, `DELETE FROM public.broken`)
	notify := push
	notify.name = "notify"
	if _, err := engine.RenameConsumer(t.Context(), declare(t, db, notify), "push", "notify", engine.ChangeOptions{}); err != nil {
		t.Fatal(err)
	}
	e := restart(t, db, notify)
	wantFate(t, why(t, e, 3, engine.WhyOptions{}), "notify", engine.VerdictQuarantined)
	if _, err := e.RetryQuarantined(t.Context(), "notify", 3, "alex"); err != nil {
		t.Error(err)
	}
	wantJobs(t, db, "notify", "3 alex", "3 sam")
	x := why(t, e, 3, engine.WhyOptions{})
	wantFate(t, x, "notify", engine.VerdictCreated)
	if len(x.Others) != 0 {
		t.Errorf("jobs that nobody claims: %+v", x.Others)
	}
	wantFate(t, why(t, e, 4, engine.WhyOptions{}), "notify", engine.VerdictCreated)

	gone := declare(t, db, entry{name: "other"})
	for _, o := range []engine.ChangeOptions{{DryRun: true}, {}} {
		if done, err := engine.RetireConsumer(t.Context(), gone, "notify", "a test", false, o); err != nil || done.Quarantined != 1 {
			t.Errorf("retire: %+v, %v; want 1 event in quarantine given up", done, err)
		}
	}
	if got := deeds(t, db); len(got) == 0 || !strings.Contains(got[len(got)-1], `"quarantined": 1`) {
		t.Errorf("audit: %q, want the count in the last deed", got)
	}
	if got := quarantine(t, e); len(got) != 0 {
		t.Errorf("quarantine: %q, want nothing", got)
	}
}

// Whatever the kind of the rule, a retry reads the event as a round does; so many recipients too that a round would read no
// further event beside it.
func TestQuarantineRetryWithEveryRule(t *testing.T) {
	t.Parallel()
	entries := []entry{
		{name: "field", recipients: "{field: audience}"},
		{name: "list", recipients: "{list: [alex, sam]}"},
		{name: "none", recipients: "none"},
		{name: "query", recipients: `{query: "SELECT b.seq, unnest(b.audience) AS recipient FROM batch b"}`},
	}
	db := database(t, entries...)
	e := open(t, configureWith(t, db.AppURL, "consumer: {max_jobs_per_round: 100}", entries...))
	ensure(t, e)
	const many = 300
	db.Exec(t, `SELECT bothy.append_event('order.paid', NULL, NULL, (SELECT array_agg('person-' || n) FROM generate_series(1, 300) n), NULL)`)
	db.Append(t, 1)
	db.Exec(t, `UPDATE bothy.event_consumer_cursors SET last_seq = 2`)
	for _, c := range entries {
		db.Exec(t, `INSERT INTO bothy.event_quarantine (consumer, seq, error_type, message, attempts) VALUES ($1, 1, 'rule', 'x', 1)`, c.name)
		want := map[string]int{"field": many, "list": 2, "none": 1, "query": many}[c.name]
		done, err := e.RetryQuarantined(t.Context(), c.name, 1, "alex")
		if err != nil || done.Jobs != want {
			t.Errorf("%s: got %d jobs, %v, want %d", c.name, done.Jobs, err, want)
		}
		if jobs := len(jobsOf(t, db, c.name)); jobs != want {
			t.Errorf("%s: %d jobs are there, want %d", c.name, jobs, want)
		}
	}
}
