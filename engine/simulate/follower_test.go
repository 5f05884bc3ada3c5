// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/jobs"
	"example.com/bothy/engine/postgres"
)

// follower does on a real server what a schedule does on the model, step by step, with the real store, and
// notes where the two differ.
type follower struct {
	t      *testing.T
	w      *world
	store  *postgres.Store
	admin  *pgx.Conn
	others []*pgx.Conn // one for each producer, and one for finalize behind them

	pids       map[*lane]uint32
	staged     []bool
	finalizing bool
	mended     bool // no rule fails any more
	dropped    int64
	missing    int
	epochs     map[string]string // of the model -> of the server
	compared   int
	differ     []string
}

// newFollower makes a database like the one that a world begins with.
func newFollower(t *testing.T, w *world) *follower {
	t.Helper()
	names := make([]string, len(w.consumers))
	for i, c := range w.consumers {
		names[i] = c.Name
	}
	db := enginetest.New(t, enginetest.WithConsumers(names...))
	f := &follower{
		t: t, w: w, admin: enginetest.Connect(t, db.AdminURL),
		pids: map[*lane]uint32{}, epochs: map[string]string{}, staged: make([]bool, len(w.producers)),
	}
	f.exec(f.admin, `DO $$ DECLARE child text; BEGIN
	FOR child IN SELECT name FROM bothy.event_log_partitions() LOOP EXECUTE format('DROP TABLE bothy.%I', child); END LOOP; END $$`)
	f.exec(f.admin, `UPDATE bothy.event_seq SET upper_bound = 1, retention = '1 hour'`)
	f.exec(f.admin, `SELECT bothy.make_partitions($1, 12)`, partition)
	f.exec(f.admin, `CREATE TABLE lost AS SELECT * FROM bothy.event_log`)
	f.exec(f.admin, `SET lock_timeout = '10s'`) // the model says that nothing waits
	f.exec(f.admin, `CREATE TABLE public.poison AS SELECT $1::boolean AS lasts`, w.shape.Faults&FaultPoison != 0)
	f.exec(f.admin, `GRANT SELECT ON public.poison TO `+enginetest.AppRole)
	f.takeIdentity()
	for range len(w.producers) + 1 {
		f.others = append(f.others, enginetest.Connect(t, db.AdminURL))
	}
	var err error
	f.store, err = postgres.Open(t.Context(), postgres.Options{
		URL: db.AppURL, Schema: enginetest.Schema, MaxConns: 16, StatementTimeout: time.Minute, LockTimeout: time.Minute, RestoreGuard: true,
		Handlers: map[string]postgres.Handler{"owner": f.handle}, Tracer: watcher{f},
	})
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	inserter, err := jobs.NewInserter(t.Context(), f.store.Pool(), enginetest.JobsSchema)
	if err != nil {
		t.Fatalf("open the queue: %v", err)
	}
	f.store.UseInserter(inserter)
	t.Cleanup(func() { inserter.Close(); f.store.Close() })
	w.storeOf = func(l *lane) consumer.Store { return twin{l, f} }
	w.follow = f.follow
	return f
}

func (f *follower) exec(conn *pgx.Conn, sql string, args ...any) {
	f.t.Helper()
	if _, err := conn.Exec(f.t.Context(), sql, args...); err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
}

// takeIdentity stores the identity of the server, as finalize does, and notes the epoch.
func (f *follower) takeIdentity() {
	f.t.Helper()
	f.exec(f.admin, `UPDATE bothy.instance SET sync_epoch = gen_random_uuid(), pg_system_identifier = (SELECT system_identifier FROM pg_control_system()),
	pg_timeline_id = ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint`)
	f.noteEpoch()
}

func (f *follower) noteEpoch() {
	f.t.Helper()
	var epoch string
	if err := f.admin.QueryRow(f.t.Context(), `SELECT sync_epoch FROM bothy.instance`).Scan(&epoch); err != nil {
		f.t.Fatal(err)
	}
	f.epochs[f.w.db.now.epoch] = epoch
}

// report notes a difference.
func (f *follower) report(who, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	f.w.note(who, "DIFFERENT: %s", text)
	f.differ = append(f.differ, fmt.Sprintf("step %d, %s: %s", len(f.w.taken), who, text))
}

// follow does a step that is not a round's, and compares what is committed.
func (f *follower) follow(c choice) {
	if f.w.settling && !f.mended {
		f.mended = true
		f.exec(f.admin, `UPDATE public.poison SET lasts = false`)
	}
	switch c.act {
	case actPrepare:
		p := f.w.processes[c.a]
		names := make([]string, len(p.lanes))
		for i, l := range p.lanes {
			names[i] = l.consumer.Name
		}
		err := f.store.Ensure(f.t.Context(), names)
		if _, behind := errors.AsType[*postgres.CounterBehindError](err); behind {
			// The store refuses to begin below rows of the log. The model starts all the same, as an engine of an
			// older release does, so that rounds meet such a log.
			f.exec(f.admin, `INSERT INTO bothy.event_consumer_cursors (name, last_seq)
SELECT n.name, h.seq FROM unnest($1::text[]) AS n (name) CROSS JOIN bothy.event_seq h ON CONFLICT (name) DO NOTHING`, names)
			err = nil
		}
		if err != nil {
			f.report(p.name(), "Ensure: %v", err)
		}
	case actProduce:
		f.produce(int(c.a), c.r)
	case actTerminate:
		f.terminate(f.w.processes[c.a].lanes[c.b])
	case actRetain:
		f.retain()
	case actLose:
		if missing := f.w.db.now.missing; len(missing) > f.missing {
			f.exec(f.admin, `WITH gone AS (DELETE FROM bothy.event_log WHERE seq = $1 RETURNING *) INSERT INTO lost SELECT * FROM gone`, missing[len(missing)-1])
		}
	case actMend:
		f.exec(f.admin, `INSERT INTO bothy.event_log SELECT * FROM lost WHERE seq > $1`, f.w.db.now.dropped)
		f.exec(f.admin, `DELETE FROM lost`)
		f.exec(f.admin, `UPDATE bothy.event_seq SET seq = (SELECT max(seq) FROM bothy.event_log)`)
	case actRewindCounter:
		f.exec(f.admin, `UPDATE bothy.event_seq SET seq = seq - 1`)
	case actRetire:
		f.exec(f.admin, `DELETE FROM bothy.event_consumer_cursors WHERE name = $1`, f.w.consumers[c.a].Name)
	case actPromote:
		f.promote()
	case actFinalize:
		f.finalize()
	default: // a lane: its twin has done it; a listener: nothing is stored
	}
	f.dropped, f.missing = f.w.db.now.dropped, len(f.w.db.now.missing)
	f.compare()
}

// retain makes the events of the oldest partition old, also seen from consumers that have still to read it, and lets
// retention take it.
func (f *follower) retain() {
	f.t.Helper()
	f.exec(f.admin, `UPDATE bothy.event_log SET occurred_at = now() - interval '2 hours' WHERE seq <= $1`, f.w.db.now.dropped)
	f.exec(f.admin, `UPDATE bothy.event_log_hold SET since = clock_timestamp() - interval '2 hours', seen = clock_timestamp()`)
	var first, last *int64
	err := f.admin.QueryRow(f.t.Context(), `SELECT first, last FROM bothy.drop_expired_partition('1 hour', '{}', false, NULL, NULL) WHERE dropped`).Scan(&first, &last)
	if err != nil || first == nil || *first != f.dropped+1 || *last != f.w.db.now.dropped {
		f.report("retention", "the server dropped %v to %v (%v), the model %d to %d", first, last, err, f.dropped+1, f.w.db.now.dropped)
	}
}

// produce appends as the real functions do: numbered at COMMIT.
func (f *follower) produce(i int, r uint64) {
	f.t.Helper()
	conn, p := f.others[i], f.w.producers[i]
	was := f.staged[i]
	f.staged[i] = len(p.staged) > 0
	switch {
	case !was:
		f.exec(conn, `BEGIN`)
		for _, e := range p.staged {
			f.exec(conn, `SELECT bothy.append_event($1, $2, '', $3, '{}')`, e.kind, e.resource, e.audience)
		}
	case r%8 == 0:
		f.exec(conn, `ROLLBACK`)
	default:
		failed := int64(len(f.w.db.now.all)) > f.w.db.now.head
		_, err := conn.Exec(f.t.Context(), `COMMIT`)
		if (err != nil) != failed {
			f.report(p.name, "COMMIT: %v, and the model fails: %t", err, failed)
		}
	}
}

// terminate ends the backend of a lane and waits until it is gone.
func (f *follower) terminate(l *lane) {
	f.t.Helper()
	f.exec(f.admin, `SELECT pg_terminate_backend($1, 10000)`, int(f.pids[l]))
}

// promote gives the database a stored identity that the server does not have, and ends what is open.
func (f *follower) promote() {
	f.t.Helper()
	for _, p := range f.w.processes {
		for _, l := range p.lanes {
			if l.session != nil && l.session.ended {
				f.terminate(l)
			}
		}
	}
	for i, conn := range f.others {
		f.exec(conn, `ROLLBACK`)
		if i < len(f.staged) {
			f.staged[i] = false
		}
	}
	f.finalizing = false
	f.exec(f.admin, `UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id + 1`)
}

// finalize takes the same rows in the same order.
func (f *follower) finalize() {
	f.t.Helper()
	conn, now := f.others[len(f.others)-1], f.w.finalizing
	switch {
	case !f.finalizing:
		f.exec(conn, `BEGIN`)
		f.exec(conn, `SELECT FROM bothy.event_seq FOR UPDATE`)
	case now != nil:
		f.exec(conn, `SELECT FROM bothy.event_consumer_cursors WHERE name = $1 FOR UPDATE`, f.w.consumers[now.next-1].Name)
	default:
		f.exec(conn, `UPDATE bothy.event_consumer_cursors SET last_seq = (SELECT seq FROM bothy.event_seq)`)
		f.exec(conn, `COMMIT`)
		f.takeIdentity()
	}
	f.finalizing = now != nil
}

// compare looks at everything that is committed.
func (f *follower) compare() {
	f.t.Helper()
	rows, err := f.admin.Query(f.t.Context(), `SELECT 'head ' || seq FROM bothy.event_seq
UNION ALL SELECT name || ' at ' || last_seq FROM bothy.event_consumer_cursors
UNION ALL SELECT 'aside ' || consumer || ' ' || seq FROM bothy.event_quarantine
UNION ALL SELECT 'row ' || seq || ' ' || type FROM bothy.event_log
UNION ALL SELECT concat_ws(' ', 'job', tags[1], args ->> 'seq', args ->> 'recipient', args ->> 'epoch') FROM public.river_job`)
	if err != nil {
		f.t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.t.Fatal(err)
	}
	s := f.w.db.now
	want := []string{fmt.Sprintf("head %d", s.head)}
	for i, c := range f.w.consumers {
		if s.cursors[i].exists {
			want = append(want, fmt.Sprintf("%s at %d", c.Name, s.cursors[i].last))
		}
	}
	for _, e := range s.after(0, int64(len(s.all)), len(s.all)) {
		want = append(want, fmt.Sprintf("row %d %s", e.Seq, e.Type))
	}
	for _, m := range s.asides {
		want = append(want, fmt.Sprintf("aside %s %d", f.w.consumers[m.consumer].Name, m.seq))
	}
	for _, j := range s.jobs {
		want = append(want, fmt.Sprintf("job %s %d %s %s", f.w.consumers[j.consumer].Name, j.seq, j.recipient, f.epochs[j.epoch]))
	}
	slices.Sort(got)
	slices.Sort(want)
	f.compared++
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		f.report("database", "the server holds\n%s\nand the model\n%s", g, w)
	}
}
