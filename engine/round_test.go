// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
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

// Every event of a table that River's own commit would show half of: another connection sees neither the
// jobs nor the cursor until both are committed.
func TestConsumerRoundJobsAndCursorCommitTogether(t *testing.T) {
	t.Parallel()
	blocked := entry{name: "push", recipients: "{handler: hold}"}
	e, db := prepared(t, blocked)
	inserted, release := make(chan struct{}), make(chan struct{})
	register(t, e, "hold", func(ctx context.Context, tx *engine.HandlerTx, ev engine.Event) ([]string, error) {
		if ev.Seq == 2 {
			close(inserted)
			<-release
		}
		return []string{"alex", "sam"}, tx.InsertJob(ctx, ownArgs{Seq: ev.Seq}, ownJob)
	})
	db.Append(t, 2)
	done := make(chan engine.Outcome)
	go func() { done <- round(t, e, "push") }()
	<-inserted // the own job of event 1 is inserted
	if own, cursor := db.Jobs(t, "test.own"), cursorOf(t, db, "push"); own != 0 || cursor != 0 {
		t.Errorf("during the round another connection sees %d jobs and cursor %d, want none and 0", own, cursor)
	}
	close(release)
	if o := <-done; o.End.Name != "processed" || o.Events != 2 || o.Jobs != 4 {
		t.Fatalf("round: %+v, want 2 events processed with 4 jobs", o)
	}
	wantExactlyOnce(t, db, "push", 1, 2, "alex", "sam")
	if own := db.Jobs(t, "test.own"); own != 2 {
		t.Errorf("%d jobs of the handler's own, want 2", own)
	}
}

func TestConsumerRoundLockedEndsAtOnce(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	a, db := prepared(t, push)
	db.Append(t, 1)
	b := open(t, configure(t, db, push))
	holder := enginetest.Connect(t, db.AppURL)
	if _, err := holder.Exec(t.Context(), `BEGIN; SELECT FROM bothy.event_consumer_cursors WHERE name = 'push' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	// far below lock_timeout: a round that waited for the lock would run into this
	ctx, cancel := context.WithTimeout(t.Context(), b.Config().Database.LockTimeout/2)
	defer cancel()
	if o := roundUnder(ctx, t, b, "push"); o.End.Name != "locked" || o.Err != nil {
		t.Fatalf("round while another transaction holds the row: %s, %v; want locked", o.End.Name, o.Err)
	}
	if jobs := jobsOf(t, db, "push"); len(jobs) != 0 {
		t.Errorf("a locked round inserted %v", jobs)
	}
	if _, err := holder.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	wantRound(t, a, "push", "processed")
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
}

func TestConsumersIndependent(t *testing.T) {
	t.Parallel()
	push, webhooks := entry{name: "push", recipients: "{handler: fail}"}, entry{name: "webhooks"}
	db := database(t, push, webhooks)
	var log lines
	e := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}", push, webhooks), engine.WithLogger(log.logger()))
	register(t, e, "fail", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
		return nil, errors.New("the handler always fails")
	})
	ensure(t, e)
	stop := runInBackground(t, e)
	for range 5 {
		db.Append(t, 4)
	}
	waitUntil(t, "webhooks reaches the head", func() bool { return cursorOf(t, db, "webhooks") == 20 })
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

func TestConsumerWakesOnNotify(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	e, db := prepared(t, push) // the poll interval is an hour
	runInBackground(t, e)
	waitUntil(t, "the engine listens", func() bool { return listeners(t, db) == 1 })
	for n := range int64(3) {
		db.Append(t, 1)
		waitUntil(t, "the notification brings the jobs", func() bool { return cursorOf(t, db, "push") == n+1 })
	}
	wantExactlyOnce(t, db, "push", 1, 3, "alex", "sam")
}

// listeners counts the connections that listen for events.
func listeners(t testing.TB, db *enginetest.DB) (n int) {
	t.Helper()
	err := admin(t, db).QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'bothy-consumer-wake' AND query LIKE 'LISTEN%'`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Case 42: a burst that is far larger than what was made ahead fails nobody, and afterwards the log has room
// again without waiting for the next minute.
func TestBurstLargerThanTheRoomAhead(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", batch: 100}
	db := database(t, push)
	db.Exec(t, `UPDATE bothy.event_seq SET seq = 999990`) // the template's partition is large
	e := open(t, configureWith(t, db.AppURL, "sync: {event_log_partition_size: 10, partitions_ahead: 2}\nconsumer: {poll_interval: 20ms}", push))
	if err := e.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := runInBackground(t, e)
	for range 10 {
		db.Append(t, 50)
	}
	waitUntil(t, "the consumer reaches the head", func() bool { return cursorOf(t, db, "push") == 1000490 })
	waitUntil(t, "the log has room ahead", func() bool {
		var room int64
		if err := admin(t, db).QueryRow(t.Context(), `SELECT max(after) - 1000491 FROM bothy.event_log_partitions()`).Scan(&room); err != nil {
			t.Fatal(err)
		}
		return room >= 20
	})
	stop()
	wantExactlyOnce(t, db, "push", 999991, 1000490, "alex", "sam")
}

// silent is a waker that never signals.
type silent struct{}

func (silent) Run(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestConsumerWakesOnPoll(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	e := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}", push))
	ensure(t, e)
	stop := e.RunWith(t.Context(), silent{})
	db.Append(t, 1)
	waitUntil(t, "the poll brings the jobs", func() bool { return cursorOf(t, db, "push") == 1 })
	if err := stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	wantExactlyOnce(t, db, "push", 1, 1, "alex", "sam")
}

// Case 34: what was sent while nobody listened is gone, and one look after connecting makes up for it.
func TestConsumerWakesAfterReconnect(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	cfg := configureWith(t, db.AppURL, "consumer: {poll_interval: 1h}", push)
	cfg.Database.ListenReconnectBackoffCap = 20 * time.Millisecond
	e := open(t, cfg)
	ensure(t, e)
	runInBackground(t, e)
	for n := range int64(3) {
		waitUntil(t, "the engine listens", func() bool { return listeners(t, db) == 1 })
		// ended and appended in one statement: the event is there before the engine is back
		db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'bothy-consumer-wake'`)
		db.Append(t, 1)
		waitUntil(t, "the event is found after the reconnect", func() bool { return cursorOf(t, db, "push") == n+1 })
	}
	wantExactlyOnce(t, db, "push", 1, 3, "alex", "sam")
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

// The comparison must be able to fail: each kind of damage shows as what it is.
func TestCompareFindsDamage(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push"})
	db.Append(t, 5)
	wantRound(t, e, "push", "processed")
	db.Exec(t, `DELETE FROM public.river_job WHERE args @> '{"seq": 2, "recipient": "alex"}'`)
	db.Exec(t, `INSERT INTO public.river_job (args, kind, max_attempts, tags) SELECT args, kind, max_attempts, tags FROM public.river_job WHERE args @> '{"seq": 3}'`)
	db.Exec(t, `INSERT INTO public.river_job (args, kind, max_attempts, tags) SELECT args || '{"recipient": "robin"}', kind, max_attempts, tags FROM public.river_job WHERE args @> '{"seq": 4, "recipient": "sam"}'`)
	got, err := e.Compare(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Comparison{Consumer: "push", Events: 5, Expected: 10, Found: 12, Missing: 1, Doubled: 2, Extra: 1}
	if diff := cmp.Diff([]engine.Comparison{want}, got); diff != "" || got[0].Sound() {
		t.Errorf("Compare (-want +got):\n%s", diff)
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
