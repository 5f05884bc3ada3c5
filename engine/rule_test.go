// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/bothy/engine"
	core "example.com/bothy/engine/round"
)

// ownArgs are those of a job that a handler inserts itself.
type ownArgs struct {
	Seq int64 `json:"seq"`
}

func (ownArgs) Kind() string { return "test.own" }

var ownJob = core.Job{}

func register(t testing.TB, e *engine.Engine, name string, h engine.Handler) {
	t.Helper()
	if err := e.Register(name, h); err != nil {
		t.Fatalf("Register(%q): %v", name, err)
	}
}

func TestConsumerRegistration(t *testing.T) {
	t.Parallel()
	e, _ := prepared(t, entry{name: "push", recipients: "{handler: known}"})
	handler := func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) { return nil, nil }
	register(t, e, "known", handler)
	for _, tt := range []struct {
		name    string
		handler engine.Handler
		want    string
	}{
		{"known", handler, "the name is taken"},
		{"Not A Name", handler, "a name is lower case"},
		{"", handler, "a name is lower case"},
		{"other", nil, "the function is nil"},
	} {
		if err := e.Register(tt.name, tt.handler); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Register(%q) = %v, want an error with %q", tt.name, err, tt.want)
		}
	}
	begun := make(chan struct{})
	go func() { // at the same time as the registration of another: the race detector looks
		defer close(begun)
		round(t, e, "push")
	}()
	_ = e.Register("meanwhile", handler)
	<-begun
	if err := e.Register("late", handler); err == nil || !strings.Contains(err.Error(), "the engine has started") {
		t.Errorf("Register after a round = %v, want it refused", err)
	}
}

// A deadlock or a lock that is not free in time is tried once more at once, wherever in the round it comes
// from; then it is a failure like any other.
func TestRoundRetriesLockFailuresOnce(t *testing.T) {
	t.Parallel()
	for code, attempts := range map[string]int{"40P01": 2, "55P03": 2, "22012": 1} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			e, db := prepared(t, entry{name: "push", recipients: "{handler: fails}"})
			called, failures := 0, 100
			register(t, e, "fails", func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
				called++
				if called > failures {
					return []string{"alex"}, nil
				}
				_, err := tx.Exec(ctx, `DO $$BEGIN RAISE 'no luck' USING ERRCODE = '`+code+`'; END$$`)
				return nil, err
			})
			db.Append(t, 1)
			o := wantRound(t, e, "push", "failed")
			var typed interface{ ErrorType() string }
			if !errors.As(o.Err, &typed) || typed.ErrorType() != code || called != attempts {
				t.Errorf("%d attempts and %v, want %d and SQLSTATE %s", called, o.Err, attempts, code)
			}
			if attempts == 2 {
				called, failures = 0, 1
				wantRound(t, e, "push", "processed")
				wantExactlyOnce(t, db, "push", 1, 1, "alex")
			}
		})
	}
}

// A rule that cannot work is found before the first round, with its place in the file, and nothing is
// created for it.
func TestRunRefusesRules(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		recipients string
		want       []string
	}{
		"syntax":           {`{query: "SELECT b.seq b.type FROM batch b"}`, []string{"consumers.yaml:6:", "[bad-rule]", "not a query that PostgreSQL accepts", "syntax error"}},
		"missing table":    {`{query: "SELECT b.seq, w.x AS recipient FROM batch b JOIN public.nothing w ON true"}`, []string{`relation "public.nothing" does not exist`}},
		"missing right":    {`{query: "SELECT b.seq, r.rolname AS recipient FROM batch b JOIN pg_catalog.pg_authid r ON true"}`, []string{"the engine's role may not", "grant it SELECT"}},
		"no recipient":     {`{query: "SELECT b.seq FROM batch b"}`, []string{"[bad-rule-columns]", "gives no column recipient, but seq"}},
		"locks":            {`{query: "SELECT b.seq, c.name AS recipient FROM batch b JOIN bothy.event_consumer_cursors c ON true FOR UPDATE OF c"}`, []string{"tries to write or lock"}},
		"writes":           {`{query: "WITH w AS (DELETE FROM bothy.event_consumer_cursors RETURNING name) SELECT b.seq, w.name AS recipient FROM batch b, w"}`, []string{"[bad-rule]"}},
		"unknown handler":  {`{handler: knwon}`, []string{"[unknown-handler]", `did you mean "known"?`}},
		"outside of batch": {`{query: "SELECT 7 AS seq, b.type AS recipient FROM (SELECT 'x' AS type) b LEFT JOIN batch ON true"}`, []string{"over an empty batch"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			push := entry{name: "push", recipients: tt.recipients}
			db := database(t, push)
			e := open(t, configure(t, db, push))
			register(t, e, "known", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) { return nil, nil })
			err := e.Run(t.Context(), engine.RoleWorker)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Run = %v, want an error with %q", err, want)
				}
			}
			if states, err := e.States(t.Context()); err != nil || len(states) != 0 {
				t.Errorf("cursors after a refused start: %v, %v; want none", states, err)
			}
		})
	}
}

// What only data shows fails the round, whole, and says what to do.
func TestRoundRefusesWhatARuleReturns(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		recipients string
		want       string
		errorType  string
	}{
		"seq outside the batch":   {`{query: "SELECT b.seq + 100 AS seq, 'x' AS recipient FROM batch b"}`, "returned seq 101, which is not in its batch", "rule"},
		"seq that types left out": {`{query: "SELECT b.seq + 1 AS seq, 'x' AS recipient FROM batch b WHERE b.seq = 1"}`, "returned seq 2, which is not in its batch", "rule"},
		"NULL seq":                {`{query: "SELECT NULL::bigint AS seq, 'x' AS recipient FROM batch b"}`, "seq is NULL", "rule"},
		"NULL recipient":          {`{query: "SELECT b.seq, NULL::text AS recipient FROM batch b"}`, "NULL or empty recipient for event 1", "rule"},
		"empty recipient":         {`{query: "SELECT b.seq, '' AS recipient FROM batch b"}`, "NULL or empty recipient for event 1", "rule"},
		"data":                    {`{query: "SELECT b.seq, (b.type::int)::text AS recipient FROM batch b"}`, "fails on the data that it reads", "22P02"},
		"a function that writes":  {`{query: "SELECT b.seq, public.note(b.type) AS recipient FROM batch b"}`, "tries to write or lock", "25006"},
		"setting back to write":   {`{query: "SELECT b.seq, set_config('transaction_read_only', 'off', true) AS recipient FROM batch b"}`, "cannot set transaction read-write mode", "25001"},
		"handler: empty":          {`{handler: empty}`, `gave the recipient "" for event 1`, "rule"},
		"handler: zero byte":      {`{handler: zero}`, `gave the recipient "a\x00b" for event 1`, "rule"},
		"handler: not UTF-8":      {`{handler: bytes}`, `gave the recipient "\xff" for event 1`, "rule"},
		"handler: error":          {`{handler: refuse}`, `handler "refuse" on event 1: not today`, "handler"},
		"handler: panic":          {`{handler: fall}`, `panic: fell`, "panic"},
		"handler: appends":        {`{handler: appends}`, `appended an event inside its round`, "BT001"},
		"handler: commits":        {`{handler: commits}`, `a handler must not run COMMIT`, "handler"},
		"handler: begins anew":    {`{handler: again}`, `a handler must not run BEGIN`, "handler"},
		"handler: hides an error": {`{handler: hides}`, `handler "hides" ended or broke the transaction on event 1`, "rule"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			push, other := entry{name: "push", recipients: tt.recipients, types: "[order.created]"}, entry{name: "other"}
			db := database(t, push, other)
			db.Exec(t, `CREATE TABLE public.notes (what text); GRANT ALL ON public.notes TO bothy_app;
CREATE FUNCTION public.note(what text) RETURNS text LANGUAGE sql AS $$INSERT INTO public.notes VALUES ($1) RETURNING what$$`)
			e := open(t, configure(t, db, push, other))
			ensure(t, e)
			give := func(recipient string) engine.Handler {
				return func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
					return []string{recipient}, nil
				}
			}
			exec := func(sql string) engine.Handler {
				return func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
					_, err := tx.Exec(ctx, sql)
					return []string{"alex"}, err
				}
			}
			for name, h := range map[string]engine.Handler{
				"empty": give(""), "zero": give("a\x00b"), "bytes": give("\xff"),
				"refuse": func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
					return nil, errors.New("not today")
				},
				"fall":    func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) { panic("fell") },
				"appends": exec(`SELECT bothy.append_event('order.created', '', '', NULL, NULL)`),
				"commits": exec(`COMMIT`),
				"again": func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
					_, err := tx.Exec(ctx, `COMMIT`)
					_, again := tx.Exec(ctx, `BEGIN`)
					return []string{"alex"}, errors.Join(err, again)
				},
				"hides": func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
					_, _ = tx.Exec(ctx, `SELECT 1 / 0`)
					return []string{"alex"}, nil
				},
			} {
				register(t, e, name, h)
			}
			db.Append(t, 1)
			db.Exec(t, `SELECT bothy.append_event('message.created', '', '', NULL, NULL)`)
			db.Append(t, 1)
			o := wantRound(t, e, "push", "failed")
			if o.Err == nil || !strings.Contains(o.Err.Error(), tt.want) {
				t.Errorf("error = %v, want %q in it", o.Err, tt.want)
			}
			if got := o.ErrorType(); got != tt.errorType {
				t.Errorf("error.type = %q, want %q", got, tt.errorType)
			}
			if cursor, jobs := cursorOf(t, db, "push"), jobsOf(t, db, "push"); cursor != 0 || len(jobs) != 0 {
				t.Errorf("after a failed round: cursor %d, jobs %v; want 0 and none", cursor, jobs)
			}
			if head := db.Head(t); head != 3 {
				t.Errorf("head is %d, want 3: a round appends nothing", head)
			}
			var notes int
			if err := admin(t, db).QueryRow(t.Context(), `SELECT count(*) FROM public.notes`).Scan(&notes); err != nil || notes != 0 {
				t.Errorf("a rule wrote %d rows (%v), want none", notes, err)
			}
			wantRound(t, e, "other", "processed") // on the same pool: no connection was left in a bad state
		})
	}
}

// A query that takes too long over a whole batch takes fewer events at a time, and every event gets its jobs.
func TestQueryRuleThatIsTooSlowForAWholeBatch(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", batch: 16, recipients: `{query: "SELECT b.seq, 'alex' AS recipient FROM batch b, pg_sleep(0.1 * (SELECT count(*) FROM batch))"}`}
	db := database(t, push)
	cfg := configureWith(t, db.AppURL, "consumer: {poll_interval: 1h}", push)
	cfg.Database.StatementTimeout = 500 * time.Millisecond
	var log lines
	e := open(t, cfg, engine.WithLogger(log.logger()))
	ensure(t, e)
	db.Append(t, 16)
	runInBackground(t, e)
	waitUntil(t, "the consumer reaches the head", func() bool { return cursorOf(t, db, "push") == 16 })
	wantExactlyOnce(t, db, "push", 1, 16, "alex")
	if got := log.String(); strings.Count(got, "takes smaller batches") != 1 || strings.Contains(got, "round failed") {
		t.Errorf("log:\n%swant one record of smaller batches and none of a failing round", got)
	}
}
