// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgtype"
	"golang.org/x/sync/errgroup"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/enginetest/cluster"
	"example.com/bothy/engine/producer"
)

func TestConsumerEnsureStartsAtHead(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	db.Append(t, 3)
	e := open(t, configure(t, db, push))
	ensure(t, e)
	if got := cursorOf(t, db, "push"); got != 3 {
		t.Errorf("cursor of a new consumer: %d, want the head 3", got)
	}
	db.Append(t, 2)
	ensure(t, open(t, configure(t, db, push))) // a second worker
	if got := cursorOf(t, db, "push"); got != 3 {
		t.Errorf("cursor after a second Ensure: %d, want it unchanged at 3", got)
	}
	wantRound(t, e, "push", "processed")
	wantExactlyOnce(t, db, "push", 4, 5, "alex", "sam")
	wantRound(t, e, "push", "idle")
}

// Jobs and cursor become visible at the same moment, whether the jobs are few (an INSERT that travels with the
// commit) or many (a COPY): another connection that looks when all of it is written, and not yet committed, sees
// none of it.
func TestConsumerRoundJobsAndCursorCommitTogether(t *testing.T) {
	t.Parallel()
	for way, events := range map[string]int{"INSERT": 3, "COPY": 40} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			db := database(t, entry{name: "push"})
			var tracer trips
			e := open(t, configure(t, db, entry{name: "push", batch: 100, recipients: "{handler: own}"}), engine.WithTracer(&tracer))
			register(t, e, "own", func(ctx context.Context, tx *engine.HandlerTx, ev engine.Event) ([]string, error) {
				return []string{"alex", "sam"}, tx.InsertJob(ctx, ownArgs{Seq: ev.Seq}, ownJob)
			})
			ensure(t, e)
			db.Append(t, events)
			// what waits for this lock is the COMMIT, after everything before it
			db.Exec(t, `CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_advisory_xact_lock(7002); RETURN NULL; END$$`)
			db.Exec(t, `CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON public.river_job DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.wait()`)
			holder := enginetest.Connect(t, db.AdminURL)
			if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_lock(7002)`); err != nil {
				t.Fatal(err)
			}
			tracer.take()
			done := make(chan engine.Outcome, 1)
			go func() { done <- round(t, e, "push") }()
			waitUntil(t, "the commit waits", func() bool {
				var n int
				err := admin(t, db).QueryRow(t.Context(), `SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND objid = 7002 AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
				return err == nil && n == 1
			})
			if jobs, own, cursor := len(jobsOf(t, db, "push")), db.Jobs(t, "test.own"), cursorOf(t, db, "push"); jobs != 0 || own != 0 || cursor != 0 {
				t.Errorf("before the commit another connection sees %d jobs, %d of the handler's own and cursor %d, want none and 0", jobs, own, cursor)
			}
			if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_unlock(7002)`); err != nil {
				t.Fatal(err)
			}
			if o := <-done; o.End.Name != "processed" || o.Events != events || o.Jobs != 2*events {
				t.Fatalf("round: %+v, want %d events processed with %d jobs", o, events, 2*events)
			}
			wantExactlyOnce(t, db, "push", 1, int64(events), "alex", "sam")
			if own := db.Jobs(t, "test.own"); own != events {
				t.Errorf("%d jobs of the handler's own, want %d", own, events)
			}
			made := strings.Join(tracer.take(), " | ")
			if way == "INSERT" && !strings.Contains(made, "INSERT SELECT COMMIT") || way == "COPY" && strings.Contains(made, "INSERT") {
				t.Errorf("round trips: %s; this test is about %s", made, way)
			}
		})
	}
}

// A round that finds another one at work ends at once, however long it may wait for locks.
func TestConsumerRoundLockedEndsAtOnce(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: "{handler: hold}"}
	db := database(t, push)
	a, cfg := open(t, configure(t, db, push)), configure(t, db, push)
	cfg.Database.LockTimeout, cfg.Database.StatementTimeout = time.Hour, time.Hour
	b := open(t, cfg)
	begun, release := make(chan struct{}), make(chan struct{})
	register(t, a, "hold", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
		close(begun)
		<-release
		return []string{"alex", "sam"}, nil
	})
	ensure(t, a)
	db.Append(t, 1)
	done := make(chan engine.Outcome, 1)
	go func() { done <- round(t, a, "push") }()
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if o := roundUnder(ctx, t, b, "push"); o.End.Name != "locked" || o.Err != nil {
		t.Errorf("round while another one holds the row: %s, %v; want locked", o.End.Name, o.Err)
	}
	if jobs := jobsOf(t, db, "push"); len(jobs) != 0 {
		t.Errorf("a locked round inserted %v", jobs)
	}
	close(release)
	if o := <-done; o.End.Name != "processed" {
		t.Errorf("the round that held the row ended %s (%v), want processed", o.End.Name, o.Err)
	}
	wantExactlyOnce(t, db, "push", 1, 1, "alex", "sam")
}

// A row that does not exist is no lock: it is told, and nothing is replayed.
func TestConsumerRoundWithoutCursorRowFails(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push"})
	db.Append(t, 1)
	db.Exec(t, `DELETE FROM bothy.event_consumer_cursors`)
	o := wantRound(t, e, "push", "failed")
	if o.Err == nil || !strings.Contains(o.Err.Error(), "the cursor row does not exist") {
		t.Errorf("error = %v, want it to name the missing row", o.Err)
	}
	if jobs := jobsOf(t, db, "push"); len(jobs) != 0 {
		t.Errorf("the round inserted %v", jobs)
	}
}

// The lock is a statement of its own, and the read comes after it: one statement for both, or the other order, would
// see the cursor and the log at different moments.
func TestRoundLocksThenReads(t *testing.T) {
	t.Parallel()
	db := database(t, entry{name: "push"})
	var sent texts
	e := open(t, configure(t, db, entry{name: "push"}), engine.WithTracer(&sent))
	ensure(t, e)
	db.Append(t, 1)
	sent.take()
	wantRound(t, e, "push", "processed")
	first := sent.take()[:4]
	want := []string{
		`^BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE$`,
		`^SELECT set_config\('bothy.in_round', \$1, true\)`,
		`(?s)^WITH at AS MATERIALIZED \(SELECT pg_catalog.pg_try_advisory_xact_lock_shared\(-?\d+\) AS free, c.last_seq = h.seq AS done.*FROM "bothy".event_consumer_cursors WHERE name = \$1 AND .* FOR UPDATE SKIP LOCKED\n`,
		`(?s)^SELECT at.*event_consumer_cursors.*event_seq.*instance.*event_log`,
	}
	for i, pattern := range want {
		if !regexp.MustCompile(pattern).MatchString(first[i]) {
			t.Errorf("statement %d of the first round trip is\n%s\nwant %s", i+1, first[i], pattern)
		}
		if locks := strings.Contains(first[i], "FOR UPDATE"); locks != (i == 2) {
			t.Errorf("statement %d locks: %v", i+1, locks)
		}
	}
}

// Case 27: rounds that find nothing to do write nothing, not even a lock into the write-ahead log. The server is one of
// its own, since the log is of the whole server.
func TestIdleRoundsWriteNothing(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	s := cluster.Start(t, "push")
	e := open(t, configure(t, s.DB, push))
	ensure(t, e)
	s.Append(t, 3)
	conn := enginetest.Connect(t, s.AdminURL)
	written := func(what func()) (bytes int64) {
		var before pgtype.Text
		if err := conn.QueryRow(t.Context(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&before); err != nil {
			t.Fatal(err)
		}
		what()
		if err := conn.QueryRow(t.Context(), `SELECT pg_current_wal_insert_lsn() - $1::pg_lsn`, before).Scan(&bytes); err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	if n := written(func() { wantRound(t, e, "push", "processed") }); n == 0 {
		t.Error("a round that makes jobs wrote nothing: the measure is broken")
	}
	if n := written(func() { s.Exec(t, `SELECT FROM bothy.event_consumer_cursors FOR UPDATE`) }); n == 0 {
		t.Error("a lock wrote nothing: the measure is broken")
	}
	// The server writes now and then by itself: a checkpoint, what autovacuum does.
	var least int64 = math.MaxInt64
	for range 30 {
		least = min(least, written(func() {
			for range 50 {
				wantRound(t, e, "push", "idle")
			}
		}))
		if least == 0 {
			return
		}
	}
	t.Errorf("50 idle rounds wrote at least %d bytes, want none", least)
}

func TestConsumersTwoWorkersExactlyOnce(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: "{handler: meet}", batch: 5}
	db := database(t, push)
	var mu sync.Mutex
	ends := map[string]int{}
	observe := engine.WithObserver(func(_ string, o engine.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		ends[o.End.Name]++
	})
	locked := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return ends["locked"] > 0
	}
	var overlap sync.Once
	meet := func(ctx context.Context, _ *engine.HandlerTx, _ engine.Event) ([]string, error) {
		// the first round waits until the other worker has found the row locked
		overlap.Do(func() {
			for tick := time.NewTicker(time.Millisecond); !locked() && ctx.Err() == nil; {
				<-tick.C
			}
		})
		return []string{"alex", "sam"}, nil
	}
	for range 2 {
		e := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 50ms}", push), observe)
		register(t, e, "meet", meet)
		ensure(t, e)
		runInBackground(t, e)
	}
	const writers, each = 4, 50
	var group errgroup.Group
	total := int64(0)
	for w := range writers {
		for i := range each {
			total += int64(1 + (w+i)%3)
		}
		group.Go(func() error {
			conn := enginetest.Connect(t, db.ProducerURL)
			for i := range each {
				tx, err := conn.Begin(t.Context())
				if err != nil {
					return err
				}
				for range 1 + (w+i)%3 {
					if _, err := producer.Append(t.Context(), tx, producer.Event{Type: "settings.updated"}); err != nil {
						return err
					}
				}
				if err := tx.Commit(t.Context()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "both workers reach the head", func() bool { return cursorOf(t, db, "push") == total })
	wantExactlyOnce(t, db, "push", 1, total, "alex", "sam")
	if !locked() {
		t.Error("no round found the row locked: the workers never overlapped")
	}
	mu.Lock()
	defer mu.Unlock()
	for end, n := range ends {
		if end != "processed" && end != "idle" && end != "locked" {
			t.Errorf("%d rounds of healthy workers ended %s", n, end)
		}
	}
}

func TestConsumersIndependent(t *testing.T) {
	t.Parallel()
	push, webhooks := entry{name: "push", recipients: "{handler: fail}"}, entry{name: "webhooks"}
	db := database(t, push, webhooks)
	var log lines
	var failures atomic.Int64
	observe := engine.WithObserver(func(name string, o engine.Outcome) {
		if name == "push" && o.End.Name == "failed" {
			failures.Add(1)
		}
	})
	e := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}", push, webhooks), engine.WithLogger(log.logger()), observe)
	register(t, e, "fail", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
		return nil, errors.New("the handler always fails")
	})
	ensure(t, e)
	stop := runInBackground(t, e)
	for range 5 {
		db.Append(t, 4)
	}
	waitUntil(t, "webhooks reaches the head", func() bool { return cursorOf(t, db, "webhooks") == 20 })
	waitUntil(t, "push fails again and again", func() bool { return failures.Load() >= 3 })
	states, err := e.States(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lags := map[string]int64{}
	for _, s := range states {
		lags[s.Name] = s.Lag()
	}
	if diff := cmp.Diff(map[string]int64{"push": 20, "webhooks": 0}, lags); diff != "" {
		t.Errorf("lags (-want +got):\n%s", diff)
	}
	stop()
	wantExactlyOnce(t, db, "webhooks", 1, 20, "alex", "sam")
	if n := strings.Count(log.String(), "event consumer round failed"); n != 1 {
		t.Errorf("%d records of a failing round, want 1 for all of them:\n%s", n, log.String())
	}
}

func TestRecipientRules(t *testing.T) {
	t.Parallel()
	entries := []entry{
		{name: "archive", recipients: "none"},
		{name: "audience", recipients: "{field: audience}"},
		{name: "resource", recipients: "{field: resource_id}", types: "[order.*]"},
		{name: "fixed", recipients: "{list: [ops, audit]}", types: "['*.placed', message.created]"},
		{name: "watch", recipients: `{query: "SELECT b.seq, w.person AS recipient FROM batch b JOIN public.watchers w ON b.type = ANY (w.types)"}`, types: "[order.*]"},
		{name: "typed", recipients: "{handler: payload}", types: "[message.*]"},
	}
	e, db := prepared(t, entries...)
	register(t, e, "payload", func(_ context.Context, _ *engine.HandlerTx, ev engine.Event) ([]string, error) {
		return []string{ev.Type + string(ev.Payload), ev.Resource, ev.Type + string(ev.Payload)}, nil
	})
	db.Exec(t, `CREATE TABLE public.watchers (person text, types text[]); GRANT SELECT ON public.watchers TO bothy_app;
INSERT INTO public.watchers VALUES ('robin', '{order.placed}'), ('sam', '{order.placed,order.paid}'), ('sam', '{order.paid}')`)
	_, err := producer.Append(t.Context(), db.Producer(t),
		producer.Event{Type: "order.placed", Resource: "order", ResourceID: "ord-1", Audience: []string{"alex", "sam", "alex"}},
		producer.Event{Type: "message.created", Resource: "message", ResourceID: "msg-1", Payload: []byte(`{"n": 1}`)},
		producer.Event{Type: "order.paid", Resource: "order"},
		producer.Event{Type: "user.registered", Audience: []string{"robin"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]job{
		"archive":  {{1, ""}, {2, ""}, {3, ""}, {4, ""}},
		"audience": {{1, "alex"}, {1, "sam"}, {4, "robin"}},
		"resource": {{1, "ord-1"}},
		"fixed":    {{1, "audit"}, {1, "ops"}, {2, "audit"}, {2, "ops"}},
		"watch":    {{1, "robin"}, {1, "sam"}, {3, "sam"}},
		"typed":    {{2, "message"}, {2, `message.created{"n": 1}`}},
	}
	for name, jobs := range want {
		wantRound(t, e, name, "processed")
		if diff := cmp.Diff(jobs, jobsOf(t, db, name)); diff != "" {
			t.Errorf("jobs of %q (-want +got):\n%s", name, diff)
		}
		// an event without targets still moves the cursor
		if got := cursorOf(t, db, name); got != 4 {
			t.Errorf("cursor of %q is %d, want 4", name, got)
		}
	}
	comparisons, err := e.Compare(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range comparisons {
		if !c.Sound() || c.Expected != int64(len(want[c.Consumer])) || c.Events != 4 {
			t.Errorf("Compare says %+v, want %d sound targets of 4 events", c, len(want[c.Consumer]))
		}
	}
}

func TestRoundJobs(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push", recipients: "{list: ['a \"quoted\" <name> \\u00e9']}", extra: ""})
	db.Append(t, 1)
	wantRound(t, e, "push", "processed")
	var args, kind, queue, tags, state string
	var attempts, priority int
	err := admin(t, db).QueryRow(t.Context(), `SELECT args::text, kind, queue, tags::text, state::text, max_attempts, priority FROM public.river_job`).
		Scan(&args, &kind, &queue, &tags, &state, &attempts, &priority)
	if err != nil {
		t.Fatal(err)
	}
	var epoch string
	if err := admin(t, db).QueryRow(t.Context(), `SELECT sync_epoch FROM bothy.instance`).Scan(&epoch); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"seq": 1, "epoch": "%s", "recipient": "a \"quoted\" <name> \\u00e9"}`, epoch)
	if args != want || kind != "test.push" || queue != "default" || tags != "{push}" || state != "available" || attempts != 25 || priority != 1 {
		t.Errorf("job: args %s, kind %s, queue %s, tags %s, state %s, max_attempts %d, priority %d; want args %s and the configured rest", args, kind, queue, tags, state, attempts, priority, want)
	}
}

func TestRoundCutByMaxJobs(t *testing.T) {
	t.Parallel()
	query := `{query: "SELECT b.seq, 'r' || n AS recipient FROM batch b, generate_series(1, 3) n"}`
	for name, recipients := range map[string]string{"list": "{list: [r1, r2, r3]}", "query": query, "handler": "{handler: three}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, db := prepared(t, entry{name: "push", recipients: recipients, extra: ", max_jobs_per_round: 7"})
			register(t, e, "three", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
				return []string{"r1", "r2", "r3"}, nil
			})
			db.Append(t, 8)
			for _, want := range []struct {
				events, jobs int
				full         bool
			}{{3, 9, true}, {3, 9, true}, {2, 6, false}} {
				o := wantRound(t, e, "push", "processed")
				if o.Events != want.events || o.Jobs != want.jobs || o.Full != want.full {
					t.Fatalf("round: %d events, %d jobs, full %v; want %+v", o.Events, o.Jobs, o.Full, want)
				}
			}
			wantExactlyOnce(t, db, "push", 1, 8, "r1", "r2", "r3")
		})
	}
}
