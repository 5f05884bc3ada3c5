// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"strings"
	"testing"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
)

// Each end that the state of the database leads to, and that nothing happens on the way to a bad one.
func TestRoundEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		damage string // after 10 events, with the cursor at 0
		end    string
		cause  string
		cursor int64
		jobs   int
		lost   int64
	}{
		"all well":                    {"", "processed", "", 10, 20, 0},
		"idle":                        {`UPDATE bothy.event_consumer_cursors SET last_seq = 10`, "idle", "", 10, 0, 0},
		"retention took the first":    {`DELETE FROM bothy.event_log WHERE seq <= 4`, "lost", "", 10, 12, 4},
		"retention took all":          {`DELETE FROM bothy.event_log`, "gap", "the log holds nothing after the cursor 0", 0, 0, 0},
		"case 18: a hole":             {`DELETE FROM bothy.event_log WHERE seq = 6`, "gap", "5 is followed by 7", 0, 0, 0},
		"a hole after a loss":         {`DELETE FROM bothy.event_log WHERE seq IN (1, 2, 7)`, "gap", "6 is followed by 8", 0, 0, 0},
		"a hole at the head":          {`DELETE FROM bothy.event_log WHERE seq = 10`, "processed", "", 9, 18, 0},
		"a counter without an event":  {`UPDATE bothy.event_seq SET seq = 11`, "processed", "", 10, 20, 0},
		"a number above the counter":  {`UPDATE bothy.event_seq SET seq = 9`, "gap", "10 is above the head 9", 0, 0, 0},
		"case 69: cursor above head":  {`UPDATE bothy.event_consumer_cursors SET last_seq = 11`, "ahead", "the cursor is at 11, above the head 10", 11, 0, 0},
		"another timeline":            {`UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id + 1`, "unfinalized", "and the cursors follow", 0, 0, 0},
		"another cluster":             {`UPDATE bothy.instance SET pg_system_identifier = 1`, "unfinalized", "and the cursors follow", 0, 0, 0},
		"identity not filled yet":     {`UPDATE bothy.instance SET pg_system_identifier = NULL`, "processed", "", 10, 20, 0},
		"identity differs, but ahead": {`UPDATE bothy.instance SET pg_system_identifier = 1; UPDATE bothy.event_consumer_cursors SET last_seq = 11`, "unfinalized", "", 11, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, db := prepared(t, entry{name: "push", batch: 100})
			db.Append(t, 10)
			for statement := range strings.SplitSeq(tt.damage, ";") {
				if statement != "" {
					db.Exec(t, statement)
				}
			}
			o := wantRound(t, e, "push", tt.end)
			if tt.cause != "" && (o.Err == nil || !strings.Contains(o.Err.Error(), tt.cause)) {
				t.Errorf("cause = %v, want %q in it", o.Err, tt.cause)
			}
			if o.Lost != tt.lost {
				t.Errorf("%d events lost, want %d", o.Lost, tt.lost)
			}
			if cursor, jobs := cursorOf(t, db, "push"), len(jobsOf(t, db, "push")); cursor != tt.cursor || jobs != tt.jobs {
				t.Errorf("cursor %d and %d jobs, want %d and %d", cursor, jobs, tt.cursor, tt.jobs)
			}
		})
	}
}

// A batch that ends before a hole is delivered; the cursor then stands at the hole and does not pass it.
func TestRoundStopsBeforeAHole(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push", batch: 5})
	db.Append(t, 10)
	db.Exec(t, `DELETE FROM bothy.event_log WHERE seq = 6`)
	wantRound(t, e, "push", "processed")
	for range 3 {
		wantRound(t, e, "push", "gap")
	}
	wantExactlyOnce(t, db, "push", 1, 5, "alex", "sam")
}

// The restore guard that is off compares nothing.
func TestRoundWithoutRestoreGuard(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	cfg := configure(t, db, push)
	cfg.Database.RestoreGuard = "off"
	e := open(t, cfg)
	ensure(t, e)
	db.Append(t, 1)
	db.Exec(t, `UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id + 1`)
	wantRound(t, e, "push", "processed")
}

// Case 74: a role that may not read the identity neither matches nor differs: a round that was not held back fails.
func TestRoundWithoutTheRightToReadTheIdentity(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push"})
	db.Append(t, 1)
	db.Exec(t, `REVOKE EXECUTE ON FUNCTION pg_catalog.pg_control_system() FROM PUBLIC, bothy_app`)
	o := wantRound(t, e, "push", "failed")
	if o.ErrorType() != "42501" {
		t.Errorf("error.type %q (%v), want 42501", o.ErrorType(), o.Err)
	}
	db.Exec(t, `GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO bothy_app`)
	wantRound(t, e, "push", "processed")
}

// The move of the cursor travels with COMMIT, and fails it when the cursor is not where the round found it.
func TestRoundWhoseCursorWasMoved(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push", recipients: "{handler: move}"})
	register(t, e, "move", func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
		_, err := tx.Exec(ctx, `UPDATE bothy.event_consumer_cursors SET last_seq = last_seq + 1`)
		return []string{"alex"}, err
	})
	db.Append(t, 2)
	o := wantRound(t, e, "push", "failed")
	if o.Err == nil || !strings.Contains(o.Err.Error(), "did not move from 0 to 2") {
		t.Errorf("error = %v, want the refused move", o.Err)
	}
	if cursor, jobs := cursorOf(t, db, "push"), jobsOf(t, db, "push"); cursor != 0 || len(jobs) != 0 {
		t.Errorf("cursor %d, jobs %v; want 0 and none", cursor, jobs)
	}
}

// What fails only at COMMIT fails the round, and the connection is good for the next.
func TestRoundWhoseCommitFails(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	cfg := configure(t, db, push)
	cfg.Database.PoolMaxConns = 1
	e := open(t, cfg)
	ensure(t, e)
	db.Append(t, 2)
	db.Exec(t, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'not at this commit'; END$$`)
	db.Exec(t, `CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON public.river_job DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.refuse()`)
	for range 2 {
		o := wantRound(t, e, "push", "failed")
		if o.Err == nil || !strings.Contains(o.Err.Error(), "not at this commit") || o.Jobs != 0 {
			t.Errorf("outcome %+v, want the error of the commit and no jobs", o)
		}
	}
	db.Exec(t, `DROP TRIGGER refuse ON public.river_job`)
	wantRound(t, e, "push", "processed")
	wantExactlyOnce(t, db, "push", 1, 2, "alex", "sam")
}

// A round sets its own limits, whatever the defaults of the role are, and always READ COMMITTED.
func TestRoundSetsItsOwnLimits(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: "{handler: look}"}
	db := database(t, push)
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET default_transaction_isolation = 'serializable'`)
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET idle_in_transaction_session_timeout = '1ms'`)
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET statement_timeout = '100ms'`)
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET default_transaction_read_only = on`)
	cfg := configure(t, db, push)
	cfg.Database.URL += "&statement_timeout=0" // for what is outside of rounds in this test
	e := open(t, cfg)
	var got []string
	register(t, e, "look", func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
		var isolation, statement, lock, idle string
		err := tx.QueryRow(ctx, `SELECT current_setting('transaction_isolation'), current_setting('statement_timeout'),
current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout') || ' ' || current_setting('jit')
|| ' ' || current_setting('client_connection_check_interval')`).Scan(&isolation, &statement, &lock, &idle)
		got = []string{isolation, statement, lock, idle}
		return nil, err
	})
	conn := enginetest.Connect(t, db.AdminURL)
	for _, sql := range []string{
		`SET default_transaction_read_only = off`, `SET statement_timeout = 0`,
		`INSERT INTO bothy.event_consumer_cursors (name) VALUES ('push')`,
		`SELECT bothy.append_event('order.created', '', '', NULL, NULL)`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	wantRound(t, e, "push", "processed")
	if want := "read committed 30s 5s 30s off 2s"; strings.Join(got, " ") != want {
		t.Errorf("in a round: %v, want %s", got, want)
	}
}
