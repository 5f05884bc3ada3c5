// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

const appendOne = `SELECT bothy.append_event($1, NULL, NULL, NULL, NULL)`

// waitFor waits until a query answers true. It asks the server, so it waits as long as the machine needs.
func waitFor(t *testing.T, db *enginetest.DB, query string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn := enginetest.Connect(t, db.AdminURL)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		var yes bool
		if err := conn.QueryRow(ctx, query, args...).Scan(&yes); err != nil {
			t.Fatalf("wait until %s: %v", query, err)
		}
		if yes {
			return
		}
		<-tick.C
	}
}

// waiting waits until a backend waits for a lock.
func waiting(t *testing.T, db *enginetest.DB, conn *pgx.Conn) {
	t.Helper()
	waitFor(t, db, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock')`, conn.PgConn().PID())
}

// types are the types of the log in order, and a test of its numbers: they run from 1 without a hole.
func types(t *testing.T, db *enginetest.DB) []string {
	t.Helper()
	rows, err := db.Owner(t).Query(t.Context(), `SELECT seq, type FROM bothy.event_log ORDER BY seq`)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for rows.Next() {
		var seq int64
		var kind string
		if err := rows.Scan(&seq, &kind); err != nil {
			t.Fatal(err)
		}
		if seq != int64(len(all)+1) {
			t.Errorf("number of row %d: got %d", len(all)+1, seq)
		}
		all = append(all, kind)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	if head := db.Head(t); head != int64(len(all)) {
		t.Errorf("head: got %d, want %d", head, len(all))
	}
	return all
}

func wantTypes(t *testing.T, db *enginetest.DB, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, types(t, db)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func begin(t *testing.T, conn *pgx.Conn, options pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := conn.BeginTx(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func must(t *testing.T, run interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any,
) {
	t.Helper()
	if _, err := run.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func hasCode(err error, code string) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == code
}

// wantCode checks the SQLSTATE of an error and a part of its text or hint.
func wantCode(t *testing.T, err error, code, part string) {
	t.Helper()
	var answer *pgconn.PgError
	if !errors.As(err, &answer) || answer.Code != code || !strings.Contains(answer.Message+" | "+answer.Hint, part) {
		t.Errorf("got %v (%+v), want SQLSTATE %s with %q", err, answer, code, part)
	}
}

func TestAppendIsNumberedAtCommit(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.ProducerURL)
	tx := begin(t, conn, pgx.TxOptions{})
	must(t, tx, appendOne, "first")
	must(t, tx, `SELECT bothy.append_events('[{"type": "second"}, {"type": "third"}]')`)
	if head := db.Head(t); head != 0 {
		t.Errorf("head before the commit: got %d, want 0", head)
	}
	db.Append(t, 1) // is not held up
	must(t, tx, appendOne, "fourth")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTypes(t, db, "order.created", "first", "second", "third", "fourth")
	var staged int
	if err := db.Owner(t).QueryRow(t.Context(), `SELECT count(*) FROM bothy.event_stage`).Scan(&staged); err != nil || staged != 0 {
		t.Errorf("events left on the stage: got %d, %v, want none", staged, err)
	}
}

// Case 28: what is rolled back gives its numbers back.
func TestAppendLeavesNoHole(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	db.Exec(t, `CREATE TABLE public.unique_later (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
	db.Exec(t, `GRANT ALL ON public.unique_later TO bothy_producer`)
	conn := enginetest.Connect(t, db.ProducerURL)

	tx := begin(t, conn, pgx.TxOptions{})
	must(t, tx, appendOne, "kept.1")
	must(t, tx, `SAVEPOINT s`)
	must(t, tx, appendOne, "undone")
	must(t, tx, `ROLLBACK TO s`)
	must(t, tx, appendOne, "kept.2")
	must(t, tx, `RELEASE s`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}

	tx = begin(t, conn, pgx.TxOptions{})
	must(t, tx, appendOne, "undone")
	must(t, tx, `INSERT INTO public.unique_later VALUES (1), (1)`)
	wantCode(t, tx.Commit(t.Context()), "23505", "unique_later")

	tx = begin(t, conn, pgx.TxOptions{})
	must(t, tx, `SAVEPOINT s`)
	must(t, tx, appendOne, "undone")
	must(t, tx, `SET CONSTRAINTS ALL IMMEDIATE`)
	must(t, tx, `ROLLBACK TO s`)
	must(t, tx, appendOne, "kept.3")
	must(t, tx, appendOne, "kept.4")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTypes(t, db, "kept.1", "kept.2", "kept.3", "kept.4")
}

func TestAppendWithConstraintsImmediate(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.ProducerURL)
	tx := begin(t, conn, pgx.TxOptions{})
	must(t, tx, appendOne, "a")
	must(t, tx, `SET CONSTRAINTS ALL IMMEDIATE`)
	must(t, tx, appendOne, "b")
	must(t, tx, `SELECT bothy.append_events('[{"type": "c"}, {"type": "d"}]')`)
	must(t, tx, `SET CONSTRAINTS ALL DEFERRED`)
	must(t, tx, appendOne, "e")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTypes(t, db, "a", "b", "c", "d", "e")
}

// A deferred trigger of the application may append while the transaction commits, before or after the
// events got their numbers.
func TestAppendInDeferredTriggers(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	db.Exec(t, `CREATE TABLE public.orders (n int)`)
	db.Exec(t, `CREATE FUNCTION public.announce() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM bothy.append_event('late.' || NEW.n, NULL, NULL, NULL, NULL); RETURN NULL; END $$`)
	db.Exec(t, `CREATE CONSTRAINT TRIGGER announce AFTER INSERT ON public.orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.announce()`)
	db.Exec(t, `GRANT ALL ON public.orders TO bothy_producer`)
	conn := enginetest.Connect(t, db.ProducerURL)
	tx := begin(t, conn, pgx.TxOptions{})
	must(t, tx, `INSERT INTO public.orders VALUES (1)`)
	must(t, tx, appendOne, "early")
	must(t, tx, `INSERT INTO public.orders VALUES (2)`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := types(t, db)
	if len(got) != 3 || !strings.HasPrefix(strings.Join(got, " "), "early") {
		t.Errorf("log: got %q, want early and two late events", got)
	}
}

// A session that replays changes runs no ordinary triggers; events must be numbered all the same.
func TestAppendInReplicaSession(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.AdminURL)
	must(t, conn, `SET session_replication_role = replica`)
	must(t, conn, appendOne, "a")
	wantTypes(t, db, "a")
}

// Case 28: a producer that appends first and one that updates first never wait for each other in a circle.
func TestAppendOrderCannotDeadlock(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	db.Exec(t, `CREATE TABLE public.account (n int)`)
	db.Exec(t, `INSERT INTO public.account VALUES (0)`)
	db.Exec(t, `GRANT ALL ON public.account TO bothy_producer`)
	const rounds = 100
	run := func(statements ...string) error {
		conn, err := pgx.Connect(t.Context(), db.ProducerURL)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		for range rounds {
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				for _, statement := range statements {
					if _, err := tx.Exec(t.Context(), statement); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	event, update := `SELECT bothy.append_event('a', NULL, NULL, NULL, NULL)`, `UPDATE public.account SET n = n + 1`
	errs := make(chan error, 4)
	for _, order := range [][]string{{event, update}, {update, event}, {event, update, event}, {update, event, update}} {
		go func() { errs <- run(order...) }()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Errorf("producer: %v", err)
		}
	}
	if got := len(types(t, db)); got != 5*rounds {
		t.Errorf("events: got %d, want %d", got, 5*rounds)
	}
}

// Case 17: whoever sees number k sees every smaller one, while many transactions of different length
// overlap and some fail.
func TestAppendIsGapFreeAndInOrder(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	producers := db.Producer(t)
	readers := make(chan error, 1)
	go func() { readers <- readInOrder(ctx, db.App(t)) }()

	var group sync.WaitGroup
	const writers, each = 8, 40
	for w := range writers {
		group.Go(func() {
			for i := range each {
				if err := appendSome(ctx, producers, w, i); err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	group.Wait()
	cancel()
	if err := <-readers; err != nil {
		t.Error(err)
	}
	types(t, db)
}

// appendSome is one transaction: one to three events, a savepoint, and every fifth time a rollback.
func appendSome(ctx context.Context, pool *pgxpool.Pool, writer, i int) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	for n := range 1 + (writer+i)%3 {
		if _, err := tx.Exec(ctx, appendOne, fmt.Sprintf("w%d.%d.%d", writer, i, n)); err != nil {
			return err
		}
	}
	if i%4 == 0 {
		if _, err := tx.Exec(ctx, `SET CONSTRAINTS ALL IMMEDIATE`); err != nil {
			return err
		}
	}
	if i%5 == 0 {
		return nil
	}
	return tx.Commit(ctx)
}

func readInOrder(ctx context.Context, pool *pgxpool.Pool) error {
	last := int64(0)
	for ctx.Err() == nil {
		var head, count, highest int64
		err := pool.QueryRow(ctx, `SELECT c.seq, count(l.seq), coalesce(max(l.seq), $1) FROM bothy.event_seq c LEFT JOIN bothy.event_log l ON l.seq > $1 GROUP BY c.seq`, last).Scan(&head, &count, &highest)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if highest != last+count || highest != head {
			return fmt.Errorf("after %d: read %d events up to %d while the head is %d", last, count, highest, head)
		}
		last = highest
	}
	return nil
}

// Case 28: at REPEATABLE READ a lost race is a failure to retry, and says so.
func TestAppendAtRepeatableRead(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			db := enginetest.New(t)
			conn := enginetest.Connect(t, db.ProducerURL)
			tx := begin(t, conn, pgx.TxOptions{IsoLevel: level})
			must(t, tx, appendOne, "slow")
			db.Append(t, 1)
			wantCode(t, tx.Commit(t.Context()), "40001", "Retry the whole transaction")
			tx = begin(t, conn, pgx.TxOptions{IsoLevel: level})
			must(t, tx, appendOne, "again")
			if err := tx.Commit(t.Context()); err != nil {
				t.Errorf("retry: %v", err)
			}
			wantTypes(t, db, "order.created", "again")
		})
	}
}

// A producer that holds the counter makes others wait, and not for ever.
func TestAppendWaitsWithALimit(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	holder := enginetest.Connect(t, db.ProducerURL)
	hold := begin(t, holder, pgx.TxOptions{})
	must(t, hold, appendOne, "a")
	must(t, hold, `SET CONSTRAINTS ALL IMMEDIATE`)

	conn := enginetest.Connect(t, db.ProducerURL)
	must(t, conn, `SET lock_timeout = '20ms'`)
	_, err := conn.Exec(t.Context(), appendOne, "b")
	wantCode(t, err, "55P03", "lock timeout")
	// The caller's own limit is what it was, also where ours had taken its place.
	must(t, conn, `SET lock_timeout = 0`)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), appendOne, "c")
		done <- err
	}()
	waiting(t, db, conn)
	if err := hold.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("append after the wait: %v", err)
	}
	tx := begin(t, conn, pgx.TxOptions{})
	must(t, tx, appendOne, "d")
	must(t, tx, `SET CONSTRAINTS ALL IMMEDIATE`)
	var limit string
	if err := tx.QueryRow(t.Context(), `SHOW lock_timeout`).Scan(&limit); err != nil || limit != "0" {
		t.Errorf("lock_timeout after an append: got %q, %v, want 0", limit, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTypes(t, db, "a", "c", "d")
}

// Cases 36 and 37: one notification for each transaction, without content; none when they are off.
func TestAppendNotifiesOnce(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	listener := enginetest.Connect(t, db.AppURL)
	must(t, listener, `LISTEN event_log`)
	conn := enginetest.Connect(t, db.ProducerURL)
	append3 := func() {
		t.Helper()
		tx := begin(t, conn, pgx.TxOptions{})
		must(t, tx, appendOne, "a")
		must(t, tx, `SET CONSTRAINTS ALL IMMEDIATE`)
		must(t, tx, `SAVEPOINT s`)
		must(t, tx, appendOne, "b")
		must(t, tx, `RELEASE s`)
		must(t, tx, `SELECT bothy.append_events('[{"type": "c"}, {"type": "d"}]')`)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	received := func() (payloads []string) {
		t.Helper()
		db.Exec(t, `NOTIFY event_log, 'end'`)
		for {
			n, err := listener.WaitForNotification(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n.Payload == "end" {
				return payloads
			}
			payloads = append(payloads, n.Payload)
		}
	}
	append3()
	append3()
	if diff := cmp.Diff([]string{"", ""}, received()); diff != "" {
		t.Errorf("payloads of two transactions (-want +got):\n%s", diff)
	}
	o := options(db)
	o.NotifyOff = true
	if report := migrate(t, o); report.NotifyTurned != "off" {
		t.Errorf("notifications: got %q, want turned off", report.NotifyTurned)
	}
	append3()
	if got := received(); len(got) != 0 {
		t.Errorf("payloads with notifications off: got %q, want none", got)
	}
}

// A transaction prepared for two-phase commit gets its numbers then; the server refuses that together with
// a notification.
func TestAppendInPreparedTransaction(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.ProducerURL)
	prepare := func() error {
		must(t, conn, `BEGIN`)
		must(t, conn, appendOne, "a")
		_, err := conn.Exec(t.Context(), `PREPARE TRANSACTION 'bothy-`+db.Name+`'`)
		return err
	}
	wantCode(t, prepare(), "0A000", "NOTIFY")
	wantTypes(t, db)
	db.Exec(t, `UPDATE bothy.event_seq SET notify = false`)
	if err := prepare(); err != nil {
		t.Fatalf("prepare with notifications off: %v", err)
	}
	must(t, conn, `COMMIT PREPARED 'bothy-`+db.Name+`'`)
	wantTypes(t, db, "a")
}

func TestAppendChecksItsArguments(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.ProducerURL)
	long := strings.Repeat("é", 257)
	tests := []struct{ call, want string }{
		{`append_event(NULL, 'r', 'i', '{}', '{}')`, `append_event: type is missing`},
		{`append_event('', 'r', 'i', '{}', '{}')`, `append_event: type is empty`},
		{`append_event('` + long + `', 'r', 'i', '{}', '{}')`, `type has 257 characters: at most 256`},
		{`append_event('a b', 'r', 'i', '{}', '{}')`, `type is "a b": blanks and control characters are not allowed`},
		{`append_event(E'a\u00a0b', 'r', 'i', '{}', '{}')`, `blanks and control characters`},
		{`append_event(E'a\u0007', 'r', 'i', '{}', '{}')`, `type is "a\u0007"`},
		{`append_event('a', 'r', 'i', '{x,NULL}', '{}')`, `audience holds a null`},
		{`append_event('a', 'r', 'i', '{x,""}', '{}')`, `audience holds an empty text`},
		{`append_event('a', 'r', 'i', '{{x},{y}}', '{}')`, `audience has more than one dimension`},
		{`append_event('a', 'r', 'i', '{}', '{}', 'infinity')`, `event_time is infinity`},
		{`append_events(NULL)`, `events is null: give a JSON array`},
		{`append_events('{"type": "a"}')`, `events is object: give a JSON array`},
		{`append_events('[{"type": "a"}, 5]')`, `events[1] is number: every element is an object`},
		{`append_events('[{"type": "a", "typ": 1}]')`, `events[0] has the unknown key "typ": the keys are type, resource`},
		{`append_events('[{}]')`, `events[0].type is missing`},
		{`append_events('[{"type": null}]')`, `events[0].type is missing`},
		{`append_events('[{"type": 5}]')`, `events[0].type is number: give a string`},
		{`append_events('[{"type": "a\tb"}]')`, `events[0].type is "a\tb": blanks`},
		{`append_events('[{"type": "a", "resource": {}}]')`, `events[0].resource is object: give a string`},
		{`append_events('[{"type": "a", "audience": "sam"}]')`, `events[0].audience is string: give an array of texts`},
		{`append_events('[{"type": "a", "audience": ["sam", 5]}]')`, `events[0].audience[1] is number`},
		{`append_events('[{"type": "a", "audience": ["sam", null]}]')`, `events[0].audience[1] is null`},
		{`append_events('[{"type": "a", "audience": [""]}]')`, `events[0].audience[0] is string (empty)`},
		{`append_events('[{"type": "a", "id": "42"}]')`, `events[0].id is "42": give a UUID`},
		{`append_events('[{"type": "a", "event_time": "yesterday"}]')`, `events[0].event_time is "yesterday": give a time with its zone`},
		{`append_events('[{"type": "a", "event_time": "2026-01-31T09:30:00"}]')`, `give a time with its zone`},
		{`append_events('[{"type": "a", "event_time": "2026-02-30T09:30:00Z"}]')`, `events[0].event_time is "2026-02-30T09:30:00Z"`},
		{`append_events('[{"type": "a", "event_time": "2026-01-30T09:30:00+99:00"}]')`, `events[0].event_time is "2026-01-30T09:30:00+99:00"`},
	}
	for _, test := range tests {
		_, err := conn.Exec(t.Context(), `SELECT bothy.`+test.call)
		wantCode(t, err, "22023", test.want)
	}
	wantTypes(t, db)
	// Case 47: the server itself refuses what jsonb cannot hold.
	_, err := conn.Exec(t.Context(), `SELECT bothy.append_event('a', NULL, NULL, NULL, '"\u0000"')`)
	wantCode(t, err, "22P05", "")
}

func TestAppendStoresWhatItIsGiven(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.ProducerURL)
	must(t, conn, `SELECT bothy.append_event('order.created', 'order', '42', '{alex,"s a,m"}', '{"a": 1}', '2026-01-31T09:30:00Z', '0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d')`)
	must(t, conn, `SELECT bothy.append_events('[
	{"type": "order.created", "resource": "order", "resource_id": "42", "audience": ["alex", "s a,m"], "payload": {"a": 1}, "event_time": "2026-01-31T10:30:00+01:00", "id": "0197A4C0-7a5e-7cc1-8f5e-3b1f0a2b4c6d"}]')`)
	must(t, conn, `SELECT bothy.append_event('bare', NULL, NULL, NULL, NULL)`)
	must(t, conn, `SELECT bothy.append_events('[{"type": "bare", "resource": null, "resource_id": null, "audience": null, "payload": null, "event_time": null, "id": null}]')`)
	must(t, conn, `SELECT bothy.append_events('[]')`)
	rows, err := db.Owner(t).Query(t.Context(), `SELECT concat_ws(' | ', seq, type, resource, resource_id, audience, payload, event_time AT TIME ZONE 'UTC', CASE WHEN resource <> '' THEN id END) ||
	CASE WHEN occurred_at BETWEEN now() - interval '5 min' AND clock_timestamp() THEN '' ELSE ' occurred at ' || occurred_at END FROM bothy.event_log ORDER BY seq`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	whole := ` | order.created | order | 42 | {alex,"s a,m"} | {"a": 1} | 2026-01-31 09:30:00 | 0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d`
	want := []string{"1" + whole, "2" + whole, `3 | bare |  |  | {} | {}`, `4 | bare |  |  | {} | {}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestAppendManyKeepsOrder(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	const many = 10_000
	var ids []string
	err := db.Producer(t).QueryRow(t.Context(), `SELECT bothy.append_events((SELECT jsonb_agg(jsonb_build_object('type', 't.' || i, 'event_time', '2026-01-31T09:30:00Z') ORDER BY i) FROM generate_series(1, $1) i))::text[]`, many).Scan(&ids)
	if err != nil {
		t.Fatal(err)
	}
	var wrong int
	err = db.Owner(t).QueryRow(t.Context(), `SELECT count(*) FROM unnest($1::uuid[]) WITH ORDINALITY x(id, i) FULL JOIN bothy.event_log l USING (id) WHERE l.seq IS DISTINCT FROM x.i OR l.type <> 't.' || x.i`, ids).Scan(&wrong)
	if err != nil || wrong != 0 || len(ids) != many {
		t.Errorf("%d ids; events out of place: got %d, %v, want none", len(ids), wrong, err)
	}
}

// Case 27: rows that an old snapshot keeps alive do not slow a transaction's own events down, also in a
// session whose plans were made while the stage was empty. The test counts rows, not time.
func TestAppendUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.AdminURL)
	for range 10 { // enough for the server to keep its plans
		must(t, conn, appendOne, "early")
	}
	old := begin(t, enginetest.Connect(t, db.AdminURL), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, old, `SELECT count(*) FROM bothy.event_log`)
	db.Append(t, 5000)
	tx := begin(t, conn, pgx.TxOptions{})
	const many = 100
	for range many {
		must(t, tx, appendOne, "late")
	}
	must(t, tx, `SET CONSTRAINTS ALL IMMEDIATE`)
	var scans, fetched int64
	err := tx.QueryRow(t.Context(), `SELECT seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'bothy.event_stage'::regclass`).Scan(&scans, &fetched)
	// One look for the first event, then a count and a move of all; the later events are gone by then.
	if err != nil || scans != 0 || fetched > 3*many {
		t.Errorf("reading the stage: got %d scans and %d rows, %v, want no scan and at most %d rows", scans, fetched, err, 3*many)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := old.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAppendRefusedInsideARound(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.AppURL)
	for _, call := range []string{`append_event('a', NULL, NULL, NULL, NULL)`, `append_events('[]')`} {
		tx := begin(t, conn, pgx.TxOptions{})
		must(t, tx, `SELECT set_config('bothy.in_round', 'push', true)`)
		_, err := tx.Exec(t.Context(), `SELECT bothy.`+call)
		wantCode(t, err, postgres.CodeAppendInRound, `consumer "push" appended an event inside its round`)
		_ = tx.Rollback(t.Context())
	}
	must(t, conn, appendOne, "after")
	wantTypes(t, db, "after")
}

// Case 77: a counter behind the log fails loudly and overwrites nothing.
func TestAppendWithCounterBehind(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	db.Append(t, 3)
	db.Exec(t, `UPDATE bothy.event_seq SET seq = 1`)
	_, err := enginetest.Connect(t, db.ProducerURL).Exec(t.Context(), appendOne, "a")
	wantCode(t, err, "23505", "duplicate key")
	db.Exec(t, `DELETE FROM bothy.event_seq`)
	_, err = enginetest.Connect(t, db.ProducerURL).Exec(t.Context(), appendOne, "a")
	wantCode(t, err, postgres.CodeNoCounter, "counter row of the event log is missing")
}
