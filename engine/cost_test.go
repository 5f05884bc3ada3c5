// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
)

// trips notes every round trip of a pool.
type trips struct {
	mu   sync.Mutex
	made []string
}

func (t *trips) note(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made = append(t.made, what)
}

// take gives what was noted since the last call.
func (t *trips) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	made := t.made
	t.made = nil
	return made
}

func (t *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if !tellsWorkers(d.SQL) {
		t.note(strings.Fields(d.SQL)[0])
	}
	return ctx
}

// tellsWorkers is the statement that tells River's workers of new jobs. It comes after a round, when the notifier
// gets to it, so that it can also be seen during the next one; and so can its first preparation.
func tellsWorkers(sql string) bool { return strings.Contains(sql, "PGNotifyMany") }

// preparedKey carries the statement from the start of its preparation to the end.
type preparedKey struct{}

func (t *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (t *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	words := make([]string, len(d.Batch.QueuedQueries))
	for i, q := range d.Batch.QueuedQueries {
		words[i] = strings.Fields(q.SQL)[0]
	}
	t.note(strings.Join(words, " "))
	return ctx
}
func (t *trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (t *trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (t *trips) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	t.note("COPY")
	return ctx
}
func (t *trips) TraceCopyFromEnd(context.Context, *pgx.Conn, pgx.TraceCopyFromEndData) {}

func (t *trips) TracePrepareStart(ctx context.Context, _ *pgx.Conn, d pgx.TracePrepareStartData) context.Context {
	return context.WithValue(ctx, preparedKey{}, d.SQL)
}

func (t *trips) TracePrepareEnd(ctx context.Context, _ *pgx.Conn, d pgx.TracePrepareEndData) {
	if sql, _ := ctx.Value(preparedKey{}).(string); !d.AlreadyPrepared && !tellsWorkers(sql) {
		t.note("PREPARE")
	}
}

// The round trips of a round depend neither on the number of events nor on the number of jobs.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	const (
		begin  = "BEGIN SELECT WITH SELECT"
		rule   = "SAVEPOINT SET WITH ROLLBACK SELECT"
		commit = "SELECT COMMIT"
		few    = "INSERT SELECT COMMIT"
	)
	for name, tt := range map[string]struct {
		recipients string
		events     int
		want       []string
	}{
		"idle":             {"{list: [alex]}", 0, []string{begin, "ROLLBACK"}},
		"no database rule": {"{list: [alex]}", 1, []string{begin, few}},
		"many events":      {"{list: [alex, sam, robin]}", 100, []string{begin, "COPY", commit}},
		"no targets":       {"{field: resource_id}", -1, []string{begin, commit}},
		"query":            {`{query: "SELECT b.seq, 'x' || n AS recipient FROM batch b, generate_series(1, 2) n"}`, 10, []string{begin, rule, few}},
		"handler":          {"{handler: both}", 10, []string{begin, "SELECT", "SELECT " + few}},
		"query, many jobs": {`{query: "SELECT b.seq, 'x' || n AS recipient FROM batch b, generate_series(1, 100) n"}`, 100, []string{begin, rule, "COPY", commit}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			push := entry{name: "push", recipients: tt.recipients, batch: 100}
			db := database(t, push)
			var tracer trips
			cfg := configure(t, db, push)
			cfg.Database.PoolMaxConns = 1 // so that the warm round warms the connection
			e := open(t, cfg, engine.WithTracer(&tracer))
			register(t, e, "both", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
				return []string{"alex", "sam"}, nil
			})
			ensure(t, e)
			add := func() {
				if tt.events < 0 {
					db.Exec(t, `SELECT bothy.append_event('order.created', '', '', NULL, NULL)`)
					return
				}
				db.Append(t, tt.events)
			}
			add()
			round(t, e, "push")
			add()
			tracer.take()
			round(t, e, "push")
			got := tracer.take()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("round trips (-want +got):\n%s", diff)
			}
		})
	}
}

// A round looks near the place where it last saw the cursor. When others moved it further, or back, it reads again:
// one round trip more, and the same end.
func TestRoundsLookWhereTheCursorWas(t *testing.T) {
	t.Parallel()
	const batch = 2
	push := entry{name: "push", recipients: "{list: [alex]}", batch: batch}
	db := database(t, push)
	var tracer trips
	cfg := configure(t, db, push)
	cfg.Database.PoolMaxConns = 1
	e := open(t, cfg, engine.WithTracer(&tracer))
	ensure(t, e)
	db.Append(t, 100)
	const begin, again, few = "BEGIN SELECT WITH SELECT", "SELECT", "INSERT SELECT COMMIT"
	for _, step := range []struct {
		what, does, end string
		first           int64
		want            []string
	}{
		{"the first one looks everywhere", ``, "processed", 1, nil},
		{"where it was", ``, "processed", 3, []string{begin, few}},
		{"a little further", `UPDATE bothy.event_consumer_cursors SET last_seq = 10`, "processed", 11, []string{begin, few}},
		{"far away", `UPDATE bothy.event_consumer_cursors SET last_seq = 90`, "processed", 91, []string{begin, again, few}},
		{"and from there", ``, "processed", 93, []string{begin, few}},
		{"back", `UPDATE bothy.event_consumer_cursors SET last_seq = 50`, "processed", 51, []string{begin, again, few}},
		{"at the head", `UPDATE bothy.event_consumer_cursors SET last_seq = 100`, "idle", 0, []string{begin, "WITH SELECT", "ROLLBACK"}},
		{"still at the head", ``, "idle", 0, []string{begin, "ROLLBACK"}},
		{"an event above the head, far away", `UPDATE bothy.event_consumer_cursors SET last_seq = 10; UPDATE bothy.event_seq SET seq = 10`, "gap", 0, []string{begin, "WITH SELECT", again, "ROLLBACK"}},
	} {
		if step.does != "" {
			db.Exec(t, step.does)
		}
		tracer.take()
		o := round(t, e, "push")
		got := slices.DeleteFunc(tracer.take(), func(trip string) bool { return trip == "PREPARE" })
		if step.want != nil && !cmp.Equal(got, step.want) {
			t.Errorf("%s: the round trips %q, want %q", step.what, got, step.want)
		}
		if o.End.Name != step.end || o.First != step.first {
			t.Errorf("%s: ended %s from %d, want %s from %d", step.what, o.End.Name, o.First, step.end, step.first)
		}
	}
}

// One event with a hundred thousand targets: what the engine holds at the worst moment is bounded.
func TestHundredThousandTargetsOfOneEvent(t *testing.T) {
	const targets = 100_000
	push := entry{name: "push", recipients: fmt.Sprintf(`{query: "SELECT b.seq, gen_random_uuid()::text AS recipient FROM batch b, generate_series(1, %d) n"}`, targets)}
	db := database(t, push)
	e := open(t, configure(t, db, push))
	ensure(t, e)
	round(t, e, "push") // idle: everything that is made once is made
	db.Append(t, 1)
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // what is alive, not what awaits collection
	runtime.GC()
	base := heap()
	worst := watchHeap(t)
	o := wantRound(t, e, "push", "processed")
	added := (int64(worst()) - int64(base)) >> 20 //nolint:gosec // sizes of a heap
	t.Logf("at most %d MB above the idle engine", added)
	if o.Jobs != targets {
		t.Errorf("%d jobs, want %d", o.Jobs, targets)
	}
	if added > 32 {
		t.Errorf("%d targets of one event took %d MB, want at most 32", targets, added)
	}
	if n := db.Jobs(t, "test.push"); n != targets {
		t.Errorf("%d jobs in the table, want %d", n, targets)
	}
}

// What a round reads for a handler is bounded by bytes, whatever the batch holds and however well it was
// compressed: payloads are read for the events of its types only, and a part at a time.
func TestHandlerReadsWithinABound(t *testing.T) {
	push := entry{name: "push", batch: 1000, types: "[wanted.*]", recipients: "{handler: weigh}"}
	db := database(t, push)
	db.Exec(t, `SELECT bothy.append_event('unwanted', '', '', NULL, jsonb_build_object('t', repeat('x', 2000000))) FROM generate_series(1, 10)`)
	db.Exec(t, `SELECT bothy.append_event('wanted.packed', '', '', NULL, jsonb_build_object('t', repeat('x', 2000000))) FROM generate_series(1, 25)`)
	db.Exec(t, `SELECT bothy.append_event('wanted.random', '', '', NULL, (SELECT jsonb_build_object('t', string_agg(md5(random()::text), '')) FROM generate_series(1, 31250 + 0 * n) i)) FROM generate_series(1, 25) n`)
	db.Exec(t, `SELECT bothy.append_event('wanted.huge', '', '', NULL, jsonb_build_object('t', repeat('x', 9000000)))`)
	db.Exec(t, `SELECT bothy.append_event('wanted.small', '', '', NULL, '{"t": "x"}') FROM generate_series(1, 500)`)
	var tracer trips
	e := open(t, configure(t, db, push), engine.WithTracer(&tracer))
	weight, seen := 0, int64(10)
	register(t, e, "weigh", func(_ context.Context, _ *engine.HandlerTx, ev engine.Event) ([]string, error) {
		if seen++; ev.Seq != seen || ev.ID == "" || ev.OccurredAt.IsZero() {
			t.Errorf("handler got %d (id %q, at %v), want %d whole", ev.Seq, ev.ID, ev.OccurredAt, seen)
		}
		weight += len(ev.Payload)
		return []string{"alex"}, nil
	})
	if _, err := admin(t, db).Exec(t.Context(), `INSERT INTO bothy.event_consumer_cursors (name) VALUES ('push')`); err != nil {
		t.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	runtime.GC()
	base := heap()
	worst := watchHeap(t)
	tracer.take()
	o := wantRound(t, e, "push", "processed")
	added := (int64(worst()) - int64(base)) >> 20 //nolint:gosec // sizes of a heap
	t.Logf("%d MB of payloads, at most %d MB above the idle engine, round trips %v", weight>>20, added, tracer.take())
	if o.Events != 561 || o.Jobs != 551 || weight < 80e6 {
		t.Errorf("%d events, %d jobs, %d bytes; want 561, 551 and at least 80 MB", o.Events, o.Jobs, weight)
	}
	if added > 48 {
		t.Errorf("the payloads of a handler took %d MB, want at most 48", added)
	}
}

// Nothing but compressed events, which look small: they are not read all at once either.
func TestHandlerReadsPackedEventsWithinABound(t *testing.T) {
	push := entry{name: "push", batch: 1000, recipients: "{handler: weigh}"}
	db := database(t, push)
	db.Exec(t, `SELECT bothy.append_event('packed', '', '', NULL, jsonb_build_object('t', repeat('x', 2000000))) FROM generate_series(1, 60)`)
	e := open(t, configure(t, db, push))
	register(t, e, "weigh", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) { return nil, nil })
	db.Exec(t, `INSERT INTO bothy.event_consumer_cursors (name) VALUES ('push')`)
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	runtime.GC()
	base := heap()
	worst := watchHeap(t)
	if o := wantRound(t, e, "push", "processed"); o.Events != 60 {
		t.Errorf("%d events, want 60", o.Events)
	}
	if added := (int64(worst()) - int64(base)) >> 20; added > 48 { //nolint:gosec // sizes of a heap
		t.Errorf("120 MB of compressed payloads took %d MB, want at most 48", added)
	}
}

// Only a handler gets payloads, and only after its round has the lock.
func TestRoundsReadNoPayloadInVain(t *testing.T) {
	t.Parallel()
	entries := []entry{
		{name: "none", recipients: "none"},
		{name: "field", recipients: "{field: audience}", types: "[order.*]"},
		{name: "fixed"},
		{name: "query", recipients: `{query: "SELECT b.seq, 'x' AS recipient FROM batch b"}`},
		{name: "handler", recipients: "{handler: one}"},
	}
	db := database(t, entries...)
	var sent texts
	e := open(t, configure(t, db, entries...), engine.WithTracer(&sent))
	register(t, e, "one", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) { return []string{"alex"}, nil })
	ensure(t, e)
	db.Append(t, 3)
	look := func(name, end string) (found bool) {
		sent.take()
		wantRound(t, e, name, end)
		for _, sql := range sent.take() {
			// batch offers every column to a rule, and the server reads those that the rule uses
			found = found || strings.Contains(strings.ReplaceAll(sql, "pg_column_size(e.payload)", ""), "e.payload,")
		}
		return found
	}
	holder := enginetest.Connect(t, db.AppURL)
	if _, err := holder.Exec(t.Context(), `BEGIN; SELECT FROM bothy.event_consumer_cursors FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	for _, c := range entries {
		if look(c.name, "locked") {
			t.Errorf("a locked round of %s read payloads", c.name)
		}
	}
	if _, err := holder.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	for _, c := range entries {
		if got, want := look(c.name, "processed"), c.name == "handler"; got != want {
			t.Errorf("a round of %s read payloads: %v, want %v", c.name, got, want)
		}
	}
}

// texts notes the statements of a pool.
type texts struct{ trips }

func (t *texts) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	t.note(d.SQL)
	return ctx
}

func (t *texts) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		t.note(q.SQL)
	}
	return ctx
}

// watchHeap looks at the heap every millisecond until the returned function is called, which gives the most
// that was in use.
func watchHeap(t testing.TB) (worst func() uint64) {
	t.Helper()
	stop, most := make(chan struct{}), make(chan uint64)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		var seen uint64
		for {
			seen = max(seen, heap())
			select {
			case <-tick.C:
			case <-stop:
				most <- seen
				return
			}
		}
	}()
	return func() uint64 { close(stop); return <-most }
}

// heap is what the program has in use, in bytes.
func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}
