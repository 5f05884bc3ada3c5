// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
)

// aside sets events aside after two rounds that failed.
const aside = ", on_failure: quarantine, after: 2"

// brittle is a query that fails on events whose type is in the table broken, and else gives alex and sam.
const brittle = `{query: "SELECT b.seq, r.recipient FROM batch b CROSS JOIN unnest(ARRAY['alex', 'sam']) AS r (recipient) WHERE CASE WHEN EXISTS (SELECT FROM public.broken x WHERE x.seq = b.seq) THEN 1 / (b.seq - b.seq) ELSE 1 END = 1"}`

// breakable is a database with the table that brittle reads.
func breakable(t testing.TB, entries ...entry) *enginetest.DB {
	t.Helper()
	db := database(t, entries...)
	db.Exec(t, `CREATE TABLE public.broken (seq bigint PRIMARY KEY)`)
	db.Exec(t, `GRANT SELECT ON public.broken TO bothy_app`)
	return db
}

// quickly polls often: a consumer that fails tries again at its next poll.
const quickly = "consumer: {poll_interval: 20ms}"

// quarantine is what is set aside, as text without its time.
func quarantine(t testing.TB, e *engine.Engine) (got []string) {
	t.Helper()
	list, err := e.Quarantined(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range list {
		if q.At.IsZero() {
			t.Errorf("event %d has no time", q.Seq)
		}
		got = append(got, fmt.Sprintf("%s %d %s %d: %s", q.Consumer, q.Seq, q.ErrorType, q.Attempts, q.Message))
	}
	return got
}

// duration is the attribute of a recovery that no test can know.
var duration = regexp.MustCompile(` bothy\.consumer\.duration=\S+`)

// without are the numbers from 1 to last but some, each for alex and sam.
func without(last int64, but ...int64) (want []string) {
	for seq := int64(1); seq <= last; seq++ {
		if !slices.Contains(but, seq) {
			want = append(want, fmt.Sprintf("%d alex", seq), fmt.Sprintf("%d sam", seq))
		}
	}
	return want
}

// The one event on which a query fails is found in its batch and set aside, and every other event has its jobs
// once. One line tells of the failure, one of each event that is set aside, one of the recovery, and none of them
// holds anything of the event.
func TestQuarantineSetsTheFailingEventAside(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: brittle, extra: aside, batch: 10}
	db := breakable(t, push)
	log := &lines{}
	var rounds atomic.Int64
	ends := &sync.Map{}
	e := open(t, configureWith(t, db.AppURL, quickly, push), engine.WithLogger(log.logger()), engine.WithObserver(func(_ string, o engine.Outcome) {
		rounds.Add(1)
		ends.Store(o.End.Name, true)
	}))
	ensure(t, e)
	db.Append(t, 25)
	db.Exec(t, `INSERT INTO public.broken VALUES (7), (8), (25)`)
	stop := runInBackground(t, e)
	waitUntil(t, "the consumer has passed everything", func() bool { return cursorOf(t, db, "push") == 25 })
	waitUntil(t, "it is told as recovered", func() bool { return strings.Contains(log.String(), "event consumer recovered") })
	stop()
	wantJobs(t, db, "push", without(25, 7, 8, 25)...)
	got := quarantine(t, e)
	for i := range got {
		head, rest, _ := strings.Cut(got[i], " 22012 ")
		_, rest, _ = strings.Cut(rest, ":")
		got[i] = head + rest
	}
	const because = " the rule failed: SQLSTATE 22012 (data exception)"
	if diff := cmp.Diff([]string{"push 7" + because, "push 8" + because, "push 25" + because}, got); diff != "" {
		t.Errorf("quarantine (-want +got):\n%s", diff)
	}
	var told []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "event consumer") {
			_, line, _ = strings.Cut(strings.TrimSpace(line), "level=")
			told = append(told, duration.ReplaceAllString(line, ""))
		}
	}
	set := func(seq int) string {
		return fmt.Sprintf(`ERROR msg="event consumer quarantined an event" bothy.consumer.name=push bothy.event.seq=%d error.type=22012`, seq)
	}
	want := []string{
		`ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=22012`, set(7), set(8),
		`INFO msg="event consumer recovered" bothy.consumer.name=push`,
		`ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=22012`, set(25),
		`INFO msg="event consumer recovered" bothy.consumer.name=push`,
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if n := rounds.Load(); n > 80 {
		t.Errorf("it took %d rounds, want a search by halves", n)
	}
	if comparisons, err := e.Compare(t.Context(), nil); err != nil || !comparisons[0].Sound() || comparisons[0].Found != 44 {
		t.Errorf("Compare: %+v, %v; want 44 jobs and none missing", comparisons, err)
	}
	wantFate(t, why(t, e, 7, engine.WhyOptions{}), "push", engine.VerdictQuarantined, "the event is in quarantine since ", "with the error 22012 after ", "SQLSTATE 22012")
}

// What a handler wrote, inserted, locked or left open before it failed on the event is gone, in whichever way it
// failed; what it did for other events stays.
func TestQuarantineKeepsNothingOfAFailedHandler(t *testing.T) {
	t.Parallel()
	secret := errors.New("card 4111 1111 1111 1111 was refused")
	for name, tt := range map[string]struct {
		fails func(ctx context.Context, tx *engine.HandlerTx) ([]string, error)
		want  string
	}{
		"error":     {func(context.Context, *engine.HandlerTx) ([]string, error) { return nil, secret }, `handler: handler "own" returned an error`},
		"panic":     {func(context.Context, *engine.HandlerTx) ([]string, error) { panic(secret) }, "panic: the rule panicked"},
		"recipient": {func(context.Context, *engine.HandlerTx) ([]string, error) { return []string{""}, nil }, `rule: the rule is handler "own", which gave a recipient that cannot be one`},
		"statement": {func(ctx context.Context, tx *engine.HandlerTx) ([]string, error) {
			_, err := tx.Exec(ctx, `SELECT 'secret'::int`)
			return nil, err
		}, `22P02: handler "own" failed: SQLSTATE 22P02 (data exception)`},
		"raised": {func(ctx context.Context, tx *engine.HandlerTx) ([]string, error) {
			_, err := tx.Exec(ctx, `DO $$BEGIN RAISE 'secret'; END$$`)
			return nil, err
		}, `P0001: handler "own" failed: SQLSTATE P0001 (raised by a function)`},
		"constraint": {func(ctx context.Context, tx *engine.HandlerTx) ([]string, error) {
			_, err := tx.Exec(ctx, `INSERT INTO public.own VALUES (1)`)
			return nil, err
		}, `23505: handler "own" failed: SQLSTATE 23505 (integrity constraint violation), constraint "own_pkey"`},
		"hidden error": {func(ctx context.Context, tx *engine.HandlerTx) ([]string, error) {
			_, _ = tx.Exec(ctx, `SELECT 1 / 0`)
			return nil, nil
		}, `rule: the rule is handler "own", which hid the error of a statement`},
		"open result": {func(ctx context.Context, tx *engine.HandlerTx) ([]string, error) {
			_, err := tx.Query(ctx, `SELECT generate_series(1, 100000)`) //nolint:sqlclosecheck // that is the mistake
			return nil, err
		}, `rule: the rule is handler "own", which left a result open`},
		"panic over an open result": {func(ctx context.Context, tx *engine.HandlerTx) ([]string, error) {
			rows, err := tx.Query(ctx, `SELECT generate_series(1, 100000)`)
			panic(fmt.Sprint(rows.Next(), err))
		}, "panic: the rule panicked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			push := entry{name: "push", recipients: "{handler: own}", extra: aside, batch: 4}
			db := database(t, push)
			db.Exec(t, `CREATE TABLE public.own (seq bigint PRIMARY KEY)`)
			db.Exec(t, `GRANT ALL ON public.own TO bothy_app`)
			log := &lines{}
			e := open(t, configureWith(t, db.AppURL, quickly, push), engine.WithLogger(log.logger()))
			register(t, e, "own", func(ctx context.Context, tx *engine.HandlerTx, ev engine.Event) ([]string, error) {
				if _, err := tx.Exec(ctx, `INSERT INTO public.own VALUES ($1)`, ev.Seq); err != nil {
					return nil, err
				}
				if _, err := tx.Exec(ctx, `SELECT pg_advisory_lock(42)`); err != nil {
					return nil, err
				}
				if err := tx.InsertJob(ctx, ownArgs{ev.Seq}, ownJob); err != nil {
					return nil, err
				}
				if ev.Seq == 3 {
					return tt.fails(ctx, tx)
				}
				return []string{"alex", "sam"}, nil
			})
			ensure(t, e)
			db.Append(t, 6)
			stop := runInBackground(t, e)
			waitUntil(t, "the consumer has passed everything", func() bool { return cursorOf(t, db, "push") == 6 })
			stop()
			wantJobs(t, db, "push", without(6, 3)...)
			got := quarantine(t, e)
			errorType, message, _ := strings.Cut(tt.want, ": ")
			if len(got) != 1 || !strings.HasPrefix(got[0], "push 3 "+errorType+" ") || !strings.HasSuffix(got[0], ": "+message) {
				t.Errorf("quarantine: %q, want event 3 with %s", got, tt.want)
			}
			if strings.Contains(fmt.Sprint(got)+log.String(), "secret") || strings.Contains(fmt.Sprint(got)+log.String(), "4111") {
				t.Errorf("something of the event is kept:\n%q\n%s", got, log)
			}
			var own, jobs, locks int
			err := admin(t, db).QueryRow(t.Context(), `SELECT (SELECT count(*) FROM public.own), (SELECT count(*) FROM public.river_job WHERE kind = 'test.own'),
	(SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objid = 42)`).Scan(&own, &jobs, &locks)
			if err != nil || own != 5 || jobs != 5 || locks != 0 {
				t.Errorf("%d rows and %d jobs of the handler and %d locks, %v; want 5, 5 and none", own, jobs, locks, err)
			}
		})
	}
}

// What is no fault of an event stalls the consumer however often it happens, whatever it declares; and so does
// any failure of one that declares nothing.
func TestQuarantineIsOnlyForFaultsOfAnEvent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		extra string
		fails func(ctx context.Context, tx *engine.HandlerTx) error
	}{
		"stall by default": {"", func(context.Context, *engine.HandlerTx) error { return errors.New("no luck") }},
		"stall":            {", on_failure: stall", func(context.Context, *engine.HandlerTx) error { panic("no luck") }},
		"missing table": {aside, func(ctx context.Context, tx *engine.HandlerTx) error {
			_, err := tx.Exec(ctx, `SELECT FROM public.nothing`)
			return err
		}},
		"missing right": {aside, func(ctx context.Context, tx *engine.HandlerTx) error {
			_, err := tx.Exec(ctx, `SELECT FROM pg_authid`)
			return err
		}},
		"statement timeout": {aside, func(ctx context.Context, tx *engine.HandlerTx) error { return raise(ctx, tx, "57014") }},
		"lock timeout":      {aside, func(ctx context.Context, tx *engine.HandlerTx) error { return raise(ctx, tx, "55P03") }},
		"deadlock":          {aside, func(ctx context.Context, tx *engine.HandlerTx) error { return raise(ctx, tx, "40P01") }},
		"full disk":         {aside, func(ctx context.Context, tx *engine.HandlerTx) error { return raise(ctx, tx, "53100") }},
		"deadline":          {aside, func(context.Context, *engine.HandlerTx) error { return fmt.Errorf("ask: %w", context.DeadlineExceeded) }},
		"connection": {aside, func(ctx context.Context, tx *engine.HandlerTx) error {
			_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			push := entry{name: "push", recipients: "{handler: own}", extra: tt.extra, batch: 4}
			db := database(t, push)
			var failures atomic.Int64
			e := open(t, configureWith(t, db.AppURL, quickly, push))
			register(t, e, "own", func(ctx context.Context, tx *engine.HandlerTx, ev engine.Event) ([]string, error) {
				if ev.Seq == 3 && failures.Add(1) <= 12 {
					return nil, tt.fails(ctx, tx)
				}
				return []string{"alex", "sam"}, nil
			})
			ensure(t, e)
			db.Append(t, 6)
			stop := runInBackground(t, e)
			waitUntil(t, "the consumer has passed everything", func() bool { return cursorOf(t, db, "push") == 6 })
			stop()
			wantExactlyOnce(t, db, "push", 1, 6, "alex", "sam")
			if got := quarantine(t, e); len(got) != 0 {
				t.Errorf("quarantine: %q, want nothing", got)
			}
		})
	}
}

func raise(ctx context.Context, tx *engine.HandlerTx, code string) error {
	_, err := tx.Exec(ctx, `DO $$BEGIN RAISE 'no luck' USING ERRCODE = '`+code+`'; END$$`)
	return err
}

// A loss to retention right before the event that fails is told as a loss, with its numbers, and the event is set
// aside afterwards.
func TestQuarantineAfterALossToRetention(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: brittle, extra: aside, batch: 3}
	db := breakable(t, push)
	log := &lines{}
	e := open(t, configureWith(t, db.AppURL, quickly, push), engine.WithLogger(log.logger()))
	ensure(t, e)
	db.Append(t, 9)
	db.Exec(t, `DELETE FROM bothy.event_log WHERE seq <= 4`)
	db.Exec(t, `INSERT INTO public.broken VALUES (5)`)
	stop := runInBackground(t, e)
	waitUntil(t, "the consumer has passed everything", func() bool { return cursorOf(t, db, "push") == 9 })
	stop()
	wantJobs(t, db, "push", without(9, 1, 2, 3, 4, 5)...)
	if got := quarantine(t, e); len(got) != 1 || !strings.HasPrefix(got[0], "push 5 22012 ") {
		t.Errorf("quarantine: %q, want event 5", got)
	}
	lost := `msg="event consumer lost events to retention" bothy.consumer.name=push bothy.event.seq=5`
	if text := log.String(); strings.Count(text, "lost events to retention") != 1 || !strings.Contains(text, lost) ||
		strings.Index(text, lost) > strings.Index(text, "quarantined an event") {
		t.Errorf("log:\n%s\nwant %s before the quarantine", text, lost)
	}
}
