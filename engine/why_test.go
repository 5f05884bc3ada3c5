// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

func why(t testing.TB, e *engine.Engine, seq int64, o engine.WhyOptions) engine.Explanation {
	t.Helper()
	x, err := e.Why(t.Context(), seq, o)
	if err != nil {
		t.Fatalf("Why(%d): %v", seq, err)
	}
	return x
}

// wantFate checks the verdict of one consumer and parts of its reason.
func wantFate(t testing.TB, x engine.Explanation, consumer string, verdict engine.Verdict, parts ...string) engine.Fate {
	t.Helper()
	for _, f := range x.Consumers {
		if f.Consumer != consumer {
			continue
		}
		if f.Verdict != verdict {
			t.Errorf("event %d at %q: verdict %s (%s), want %s", x.Seq, consumer, f.Verdict, f.Reason, verdict)
		}
		for _, part := range parts {
			if !strings.Contains(f.Reason, part) {
				t.Errorf("event %d at %q: reason %q, want it to say %q", x.Seq, consumer, f.Reason, part)
			}
		}
		return f
	}
	t.Errorf("event %d: no word about %q", x.Seq, consumer)
	return engine.Fate{}
}

func TestWhyCreated(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push"}, entry{name: "archive", recipients: "none"})
	db.Append(t, 3)
	wantRound(t, e, "push", "processed")
	wantRound(t, e, "archive", "processed")
	// What another program put into the same table is not ours, and neither is another event's.
	db.Exec(t, `INSERT INTO public.river_job (kind, args, max_attempts, tags) VALUES ('own', '{"seq": 2}', 3, '{push}'),
	('own', '{"seq": 3, "recipient": "robin", "epoch": "e"}', 3, '{push}'), ('own', '{"n": {"seq": 2}, "recipient": "robin", "epoch": "e"}', 3, '{push}'),
	('own', '{"seq": 2, "recipient": "robin", "epoch": "e"}', 3, '{other,push}')`)

	x := why(t, e, 2, engine.WhyOptions{})
	if !x.Sound() || x.Presence != engine.PresenceRetained || x.Head != 3 || x.Floor != 1 || len(x.Others) != 0 {
		t.Errorf("got %+v, want a retained event, head 3, floor 1", x)
	}
	if got := x.Event; got.Type != "order.created" || got.ResourceID != "2" || len(got.Audience) != 2 || got.Payload != nil || got.OccurredAt.IsZero() {
		t.Errorf("event: got %+v", got)
	}
	f := wantFate(t, x, "push", engine.VerdictCreated)
	var got []string
	for _, j := range f.Jobs.Jobs {
		got = append(got, fmt.Sprintf("%s %s %s %s %d/%d", j.Recipient, j.Kind, j.Queue, j.State, j.Attempt, j.MaxAttempts))
	}
	want := []string{"alex test.push default available 0/25", "sam test.push default available 0/25"}
	if diff := cmp.Diff(want, got); diff != "" || f.Jobs.Count != 2 || f.Jobs.Tag != "push" {
		t.Errorf("jobs under %s, %d (-want +got):\n%s", f.Jobs.Tag, f.Jobs.Count, diff)
	}
	if f := wantFate(t, x, "archive", engine.VerdictCreated); f.Jobs.Count != 1 || f.Jobs.Jobs[0].Recipient != "" {
		t.Errorf("jobs of archive: %+v", f.Jobs)
	}
	if x := why(t, e, 2, engine.WhyOptions{Consumer: "archive", Payload: true}); len(x.Consumers) != 1 || string(x.Event.Payload) != `{"n": 2}` || len(x.Others) != 0 {
		t.Errorf("one consumer, with the payload: %+v", x)
	}
}

// A verdict that the page does not explain is a riddle to whoever gets it.
func TestOperationsExplainEveryVerdict(t *testing.T) {
	t.Parallel()
	wantExplained(t, "why.go", `Verdict\w+ +Verdict = "([a-z_]+)"`, 10)
}

func TestWhyRefuses(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push"})
	db.Append(t, 1)
	_, err := e.Why(t.Context(), 0, engine.WhyOptions{})
	wantRefusal(t, err, "there is no event 0: the numbers begin at 1")
	_, err = e.Why(t.Context(), 1, engine.WhyOptions{Consumer: "pusch"})
	wantRefusal(t, err, `consumer "pusch" is not declared in consumers.yaml (did you mean "push"?)`)
	if x := why(t, e, 2, engine.WhyOptions{}); x.Presence != engine.PresenceAhead || x.Sound() || len(x.Consumers) != 0 {
		t.Errorf("event above the head: %+v, want it to be ahead", x)
	}
}

func TestWhyNotReached(t *testing.T) {
	t.Parallel()
	entries := []entry{
		{name: "push"},
		{name: "field", recipients: "{field: resource_id}"},
		{name: "archive", recipients: "none"},
		{name: "query", recipients: `{query: "SELECT b.seq, w.person AS recipient FROM batch b JOIN public.watchers w ON w.id::text = b.resource_id"}`},
		{name: "fails", recipients: `{query: "SELECT b.seq, (1 / (b.seq - b.seq))::text AS recipient FROM batch b"}`},
		{name: "slow", recipients: `{query: "SELECT b.seq, pg_sleep(60)::text AS recipient FROM batch b"}`},
		{name: "writes", recipients: `{query: "SELECT b.seq, public.note() AS recipient FROM batch b"}`},
		{name: "code", recipients: "{handler: code}"},
		{name: "mail", types: "[mail.*, letter.*]"},
	}
	db := database(t, entries...)
	db.Exec(t, `CREATE TABLE public.watchers (id bigint, person text); GRANT SELECT ON public.watchers TO bothy_app; INSERT INTO public.watchers VALUES (3, 'robin'), (3, 'alex');
CREATE TABLE public.notes (what text); GRANT ALL ON public.notes TO bothy_app;
CREATE FUNCTION public.note() RETURNS text LANGUAGE sql AS $$INSERT INTO public.notes VALUES ('x') RETURNING what$$`)
	cfg := configure(t, db, entries...)
	cfg.Database.StatementTimeout = time.Second
	e := open(t, cfg)
	register(t, e, "code", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
		t.Error("the handler was called")
		return nil, nil
	})
	ensure(t, e)
	db.Append(t, 3)

	x := why(t, e, 3, engine.WhyOptions{})
	if !x.Sound() {
		t.Error("an event that waits is no fault")
	}
	for name, want := range map[string][]string{"push": {"alex", "sam"}, "field": {"3"}, "archive": {""}, "query": {"alex", "robin"}} {
		f := wantFate(t, x, name, engine.VerdictWaiting, "not reached yet: its cursor is at 0, 2 events come before this one")
		if f.Would == nil || f.Would.Kind != "test."+name || f.Would.Count != len(want) || !cmp.Equal(want, f.Would.Recipients) {
			t.Errorf("%q would create %+v, want jobs for %q", name, f.Would, want)
		}
	}
	wantFate(t, x, "fails", engine.VerdictRuleFails, "not reached yet", "fails on the data that it reads", "division by zero")
	wantFate(t, x, "slow", engine.VerdictRuleFails, "could not be run", "statement timeout")
	wantFate(t, x, "writes", engine.VerdictRuleFails, "tries to write or lock")
	wantFate(t, x, "code", engine.VerdictWaiting, "not reached yet", `its handler "code" was not asked, since it may write`)
	wantFate(t, x, "mail", engine.VerdictTypes, "its types are mail.*, letter.*, and none matches order.created")
	wantFate(t, why(t, e, 1, engine.WhyOptions{}), "query", engine.VerdictWaiting, "this event is next", "its query gives nobody now")
	wantFate(t, why(t, e, 2, engine.WhyOptions{}), "query", engine.VerdictWaiting, "1 event comes before this one")

	var notes, moved int
	if err := admin(t, db).QueryRow(t.Context(), `SELECT (SELECT count(*) FROM public.notes), (SELECT count(*) FROM bothy.event_consumer_cursors WHERE last_seq <> 0)`).Scan(&notes, &moved); err != nil || notes != 0 || moved != 0 {
		t.Errorf("after asking: %d notes, %d cursors moved, %v; want nothing changed", notes, moved, err)
	}
	if got := db.Jobs(t, "test.push"); got != 0 {
		t.Errorf("after asking: %d jobs, want none", got)
	}
}

// Consumers that have passed an event and made no job of it.
func TestWhyPassedWithoutJobs(t *testing.T) {
	t.Parallel()
	entries := []entry{
		{name: "push"},
		{name: "field", recipients: "{field: audience}"},
		{name: "code", recipients: "{handler: nobody}"},
		{name: "query", recipients: `{query: "SELECT b.seq, w.person AS recipient FROM batch b JOIN public.watchers w ON true"}`},
		{name: "mail", types: "[mail.*]"},
	}
	db := database(t, entries...)
	db.Exec(t, `CREATE TABLE public.watchers (person text); GRANT SELECT ON public.watchers TO bothy_app`)
	e := open(t, configure(t, db, entries...))
	register(t, e, "nobody", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) { return nil, nil })
	ensure(t, e)
	db.Exec(t, `SELECT bothy.append_event('order.created', 'order', '1', '{}', '{}')`)
	for _, c := range entries {
		wantRound(t, e, c.name, "processed")
	}
	x := why(t, e, 1, engine.WhyOptions{})
	if !x.Sound() {
		t.Error("every reason is known")
	}
	wantFate(t, x, "push", engine.VerdictCreated)
	wantFate(t, x, "field", engine.VerdictNobody, "the event's audience, which names the recipients, is empty")
	wantFate(t, x, "code", engine.VerdictHandler, "its cursor is at 1", "was not asked")
	wantFate(t, x, "query", engine.VerdictNobody, "its query gives nobody now (the tables that it reads may have changed since)")
	wantFate(t, x, "mail", engine.VerdictTypes)

	db.Exec(t, `INSERT INTO public.watchers VALUES ('robin')`)
	if f := wantFate(t, why(t, e, 1, engine.WhyOptions{}), "query", engine.VerdictChanged, "the tables that it reads have changed since", "CompletedJobRetentionPeriod"); f.Would == nil || f.Would.Count != 1 {
		t.Errorf("query gives now: %+v, want one job", f.Would)
	}

	// Jobs that are not there any more: unexplained while River would still keep them, explained later.
	db.Exec(t, `DELETE FROM public.river_job WHERE 'push' = ANY (tags)`)
	x = why(t, e, 1, engine.WhyOptions{})
	if x.Sound() {
		t.Error("jobs that are missing are a fault")
	}
	wantFate(t, x, "push", engine.VerdictMissing, "its jobs are missing", "24 hours")
	db.Exec(t, `UPDATE bothy.event_log SET occurred_at = now() - interval '25 hours'`)
	x = why(t, e, 1, engine.WhyOptions{})
	if !x.Sound() {
		t.Error("jobs that River has deleted are no fault")
	}
	wantFate(t, x, "push", engine.VerdictGone, "River deletes completed ones after CompletedJobRetentionPeriod (24 hours")
	// A job that was completed before the event occurred and is still there shows that River deleted none since.
	db.Exec(t, `INSERT INTO public.river_job (kind, args, max_attempts, state, finalized_at) VALUES ('own', '{}', 1, 'completed', now() - interval '26 hours')`)
	wantFate(t, why(t, e, 1, engine.WhyOptions{}), "push", engine.VerdictMissing, "still keeps jobs that were completed before this event")
}

func TestWhyBeforeItsStart(t *testing.T) {
	t.Parallel()
	push, late, never := entry{name: "push"}, entry{name: "late"}, entry{name: "never"}
	e, db := prepared(t, push)
	db.Append(t, 4)
	if _, err := e.Round(t.Context(), "push"); err != nil {
		t.Fatal(err)
	}
	allow(t, db, "late", "never")
	ensure(t, open(t, configure(t, db, push, late)))
	db.Append(t, 1)
	all := open(t, configure(t, db, push, late, never))
	x := why(t, all, 4, engine.WhyOptions{})
	wantFate(t, x, "late", engine.VerdictBeforeStart, "it began after event 4")
	wantFate(t, x, "never", engine.VerdictNoCursor, "it has no cursor yet", "begins at the head")
	wantFate(t, why(t, all, 5, engine.WhyOptions{}), "late", engine.VerdictWaiting, "this event is next")

	// The start stays with the consumer when its name changes.
	early := entry{name: "early"}
	if _, err := engine.RenameConsumer(t.Context(), declare(t, db, push, early), "late", "early", engine.ChangeOptions{}); err != nil {
		t.Fatal(err)
	}
	wantFate(t, why(t, open(t, configure(t, db, push, early)), 4, engine.WhyOptions{}), "early", engine.VerdictBeforeStart, "it began after event 4")
}

// Cursors that were made before there was an audit have no start: nothing is claimed about it.
func TestWhyWithoutARecordedStart(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	db.Append(t, 2)
	db.Exec(t, `ALTER TABLE bothy.event_consumer_cursors DISABLE TRIGGER USER; INSERT INTO bothy.event_consumer_cursors VALUES ('push', 1)`)
	e := open(t, configure(t, db, push))
	x := why(t, e, 1, engine.WhyOptions{})
	if !x.Sound() {
		t.Error("an event that the consumer may never have seen is no fault")
	}
	wantFate(t, x, "push", engine.VerdictUnknown, "the consumer is older than the audit")
	wantRound(t, e, "push", "processed")
	wantFate(t, why(t, e, 2, engine.WhyOptions{}), "push", engine.VerdictCreated)
	if list, _, err := e.ListConsumers(t.Context()); err != nil || list[0].Start != nil {
		t.Errorf("list: %+v, %v; want no start", list, err)
	}
}

// A name that was given away and taken again belongs to two consumers, each for its own events.
func TestWhyKnowsFormerNames(t *testing.T) {
	t.Parallel()
	push, mail := entry{name: "push"}, entry{name: "mail"}
	e, db := prepared(t, push)
	db.Append(t, 2)
	wantRound(t, e, "push", "processed")
	if _, err := engine.RenameConsumer(t.Context(), declare(t, db, mail), "push", "mail", engine.ChangeOptions{}); err != nil {
		t.Fatal(err)
	}
	allow(t, db, "push")
	both := open(t, configure(t, db, push, mail))
	ensure(t, both)
	db.Append(t, 1)
	wantRound(t, both, "push", "processed")
	wantRound(t, both, "mail", "processed")

	x := why(t, both, 2, engine.WhyOptions{})
	wantFate(t, x, "push", engine.VerdictBeforeStart)
	if f := wantFate(t, x, "mail", engine.VerdictCreated); f.Jobs.Tag != "push" || len(x.Others) != 0 {
		t.Errorf("jobs of mail: %+v, others %+v; want those under the tag push", f.Jobs, x.Others)
	}
	x = why(t, both, 3, engine.WhyOptions{})
	for _, name := range []string{"push", "mail"} {
		if f := wantFate(t, x, name, engine.VerdictCreated); f.Jobs.Tag != name {
			t.Errorf("jobs of %q: %+v", name, f.Jobs)
		}
	}
	// Jobs of a consumer that nobody declares any more are shown apart.
	if x := why(t, open(t, configure(t, db, mail)), 3, engine.WhyOptions{}); len(x.Others) != 1 || x.Others[0].Tag != "push" || x.Others[0].Count != 2 {
		t.Errorf("others: %+v, want the two jobs under the tag push", x.Others)
	}
}

func TestWhyLost(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push"}, entry{name: "slow"}, entry{name: "quick", recipients: "{field: resource}"})
	db.Append(t, 5)
	wantRound(t, e, "push", "processed")
	wantRound(t, e, "quick", "processed")
	db.Exec(t, `DELETE FROM public.river_job WHERE 'quick' = ANY (tags)`)
	db.Exec(t, `DELETE FROM bothy.event_log WHERE seq <= 3`)
	x := why(t, e, 2, engine.WhyOptions{})
	if x.Sound() || x.Presence != engine.PresenceRemoved || x.Event != nil || x.Floor != 4 {
		t.Errorf("got %+v, want a removed event and floor 4", x)
	}
	wantFate(t, x, "push", engine.VerdictCreated)
	wantFate(t, x, "slow", engine.VerdictLost, "retention removed the event while the cursor was at 0")
	wantFate(t, x, "quick", engine.VerdictUnknown, "its cursor is at 5", "nothing tells whether")

	db.Exec(t, `DELETE FROM bothy.event_log WHERE seq = 5`)
	db.Append(t, 1)
	x = why(t, e, 5, engine.WhyOptions{})
	if x.Sound() || x.Presence != engine.PresenceHole {
		t.Errorf("got %+v, want a hole", x)
	}
	wantFate(t, x, "slow", engine.VerdictWaiting, "stops before the hole")
	db.Exec(t, `DELETE FROM bothy.event_log`)
	if x := why(t, e, 6, engine.WhyOptions{}); x.Presence != engine.PresenceRemoved || x.Floor != 0 {
		t.Errorf("in an empty log: %+v, want a removed event", x)
	}
}

// allow lets further names in, as migrating with another file would.
func allow(t testing.TB, db *enginetest.DB, names ...string) {
	t.Helper()
	if _, err := postgres.AllowNames(t.Context(), db.OwnerURL, enginetest.Schema, names); err != nil {
		t.Fatal(err)
	}
}
