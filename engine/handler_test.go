// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
)

// A handler cannot end the transaction of its round, in whatever words, and not even one that does not look at
// errors gets jobs of its own twice.
func TestHandlerCannotEndItsTransaction(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "simple_protocol"} {
		for i, sql := range []string{
			"COMMIT", "commit;", " ;; Commit AND CHAIN", "END", "ABORT", "ROLLBACK", "ROLLBACK AND CHAIN", "/* a /* b */ c */ COMMIT", "-- a\nCOMMIT",
			"COMMIT/**/", "COMMIT--", "PREPARE TRANSACTION 'x'", "BEGIN", "START TRANSACTION", "SELECT 1; COMMIT", "DO $$BEGIN COMMIT; END$$",
		} {
			t.Run(fmt.Sprintf("%s %d", mode, i), func(t *testing.T) {
				t.Parallel()
				push := entry{name: "push", recipients: "{handler: ends}"}
				db := database(t, push)
				cfg := configure(t, db, push)
				cfg.Database.URL += config.Secret("&default_query_exec_mode=" + mode)
				e := open(t, cfg)
				register(t, e, "ends", func(ctx context.Context, tx *engine.HandlerTx, ev engine.Event) ([]string, error) {
					if err := tx.InsertJob(ctx, ownArgs{Seq: ev.Seq}, ownJob); err != nil {
						return nil, err
					}
					if _, err := tx.Exec(ctx, sql); err == nil {
						t.Errorf("a handler ran %q, want an error", sql)
					}
					return []string{"alex"}, nil
				})
				ensure(t, e)
				db.Append(t, 2)
				for range 3 {
					round(t, e, "push")
				}
				own, cursor := db.Jobs(t, "test.own"), cursorOf(t, db, "push")
				if int64(own) != cursor || len(jobsOf(t, db, "push")) != own {
					t.Errorf("after %q: %d jobs of the handler's own, %d of the consumer and cursor %d; want them equal", sql, own, len(jobsOf(t, db, "push")), cursor)
				}
			})
		}
	}
}

// A savepoint of the handler's own is its own business.
func TestHandlerMayUseSavepoints(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push", recipients: "{handler: saves}"})
	register(t, e, "saves", func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
		for _, sql := range []string{"SAVEPOINT mine", "SELECT 1 / 0", "ROLLBACK WORK TO SAVEPOINT mine", "RELEASE SAVEPOINT mine"} {
			if _, err := tx.Exec(ctx, sql); (err != nil) != strings.Contains(sql, "/ 0") {
				return nil, fmt.Errorf("%s: %w", sql, err)
			}
		}
		return []string{"alex"}, nil
	})
	db.Append(t, 1)
	wantRound(t, e, "push", "processed")
}

// What a handler was given ends when it returns.
func TestHandlerKeepsNothingOfItsTransaction(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push", recipients: "{handler: keeps}"}, entry{name: "open", recipients: "{handler: leaves}"})
	var kept *engine.HandlerTx
	register(t, e, "keeps", func(_ context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
		kept = tx
		return []string{"alex"}, nil
	})
	register(t, e, "leaves", func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
		_, err := tx.Query(ctx, `SELECT generate_series(1, 10)`) //nolint:sqlclosecheck // that is the mistake
		return []string{"alex"}, err
	})
	db.Append(t, 1)
	wantRound(t, e, "push", "processed")
	var n int
	for what, err := range map[string]error{
		"Exec":      func() error { _, err := kept.Exec(t.Context(), `SELECT 1`); return err }(),
		"Query":     func() error { _, err := kept.Query(t.Context(), `SELECT 1`); return err }(), //nolint:sqlclosecheck // there are none
		"QueryRow":  kept.QueryRow(t.Context(), `SELECT 1`).Scan(&n),
		"InsertJob": kept.InsertJob(t.Context(), ownArgs{}, ownJob),
	} {
		if err == nil || !strings.Contains(err.Error(), "the handler has returned") {
			t.Errorf("%s after the handler returned: %v, want an error that says so", what, err)
		}
	}
	if o := wantRound(t, e, "open", "failed"); !strings.Contains(o.Err.Error(), "left a result of event 1 open") {
		t.Errorf("error = %v, want one that names the open result", o.Err)
	}
}

// A lock of the session, taken in a rule, ends with the round: the connection goes back to the pool.
func TestRuleKeepsNoSessionLock(t *testing.T) {
	t.Parallel()
	entries := []entry{
		{name: "query", recipients: `{query: "SELECT b.seq, 'alex' AS recipient FROM batch b, pg_advisory_lock(7001)"}`},
		{name: "handler", recipients: "{handler: locks}"},
		{name: "fails", recipients: `{query: "SELECT b.seq, '' AS recipient FROM batch b, pg_advisory_lock(7001)"}`},
	}
	for _, mode := range []string{"cache_statement", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := database(t, entries...)
			cfg := configure(t, db, entries...)
			cfg.Database.URL += config.Secret("&default_query_exec_mode=" + mode)
			cfg.Database.PoolMaxConns = 1
			e := open(t, cfg)
			register(t, e, "locks", func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
				_, err := tx.Exec(ctx, `SELECT pg_advisory_lock(7001)`)
				return []string{"alex"}, err
			})
			ensure(t, e)
			db.Append(t, 1)
			for name, end := range map[string]string{"query": "processed", "handler": "processed", "fails": "failed"} {
				wantRound(t, e, name, end)
				waitUntil(t, "nobody holds the lock after a round of "+name, func() bool {
					var held int
					err := admin(t, db).QueryRow(t.Context(), `SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND objid = 7001 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&held)
					return err == nil && held == 0
				})
			}
		})
	}
}

// A rule is one statement, also over a connection that is told to use the simple protocol.
func TestRuleIsOneStatement(t *testing.T) {
	t.Parallel()
	const several = `SELECT b.seq, 'x' AS recipient FROM batch b) r; CREATE TABLE public.slipped (); SELECT * FROM (SELECT 1 AS seq, 'x' AS recipient WHERE false`
	push := entry{name: "push", recipients: `{query: "SELECT b.seq, 'x' AS recipient FROM batch b"}`}
	db := database(t, push)
	db.Exec(t, `GRANT CREATE ON SCHEMA public TO bothy_app`)
	cfg := configure(t, db, push)
	cfg.Database.URL += "&default_query_exec_mode=simple_protocol"
	cfg.Consumers[0].Recipients.Query = several // the reader of the file refuses it; what runs it must as well
	e := open(t, cfg)
	ensure(t, e)
	db.Append(t, 1)
	found, err := e.Store().CheckRule(t.Context(), several)
	if err != nil || !strings.Contains(fmt.Sprint(found), "not a query that PostgreSQL accepts") {
		t.Errorf("CheckRule = %v, %v, want it refused", found, err)
	}
	wantRound(t, e, "push", "failed")
	var there bool
	if err := admin(t, db).QueryRow(t.Context(), `SELECT to_regclass('public.slipped') IS NOT NULL`).Scan(&there); err != nil || there {
		t.Errorf("a second statement ran: %v, %v", there, err)
	}
}
