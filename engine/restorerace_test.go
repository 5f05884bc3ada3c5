// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/finalize"
	"example.com/bothy/engine/restore"
)

// ending is how a finalize in the background ended.
type ending struct {
	report engine.FinalizeReport
	err    error
}

// finalizing runs a finalize in the background.
func finalizing(ctx context.Context, cfg *config.Config, wrap func(finalize.Tx) finalize.Tx) <-chan ending {
	ended := make(chan ending, 1)
	go func() {
		r, err := engine.FinalizeRestoreThrough(ctx, cfg, engine.FinalizeOptions{}, wrap)
		ended <- ending{r, err}
	}()
	return ended
}

// waits reports whether the finalize waits for a lock.
func waits(t *testing.T, db *enginetest.DB) bool {
	t.Helper()
	return text(t, db, `SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'bothy-restore' AND datname = current_database() AND wait_event_type = 'Lock'`) == "1"
}

// A cursor that somebody is changing while the finalize waits for its row is moved as it is then.
func TestFinalizeRestoreWaitsForAChangedCursor(t *testing.T) {
	t.Parallel()
	db, cfg := restored(t)
	busy := enginetest.Connect(t, db.AdminURL)
	for _, sql := range []string{
		`BEGIN`, `UPDATE bothy.agent_consumer_cursors SET acked_seq = 6 WHERE agent = 'alex'`,
		`UPDATE bothy.agent_consumer_cursors SET acked_seq = 14 WHERE agent = 'sam'`, // it stood at the head
		`UPDATE shop.positions SET last_seq = 5 WHERE kind = 'search' AND last_seq IS NOT NULL`,
	} {
		if _, err := busy.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	ended := finalizing(t.Context(), cfg, nil)
	waitUntil(t, "the finalize waits for a row", func() bool { return waits(t, db) })
	if _, err := busy.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	if e := <-ended; e.err != nil || e.report.End.Name != finalize.EndFinalized {
		t.Fatalf("got end %q and %v, want finalized", e.report.End.Name, e.err)
	}
	wantText(t, db, "alex=15 sam=15", `SELECT string_agg(agent || '=' || acked_seq, ' ' ORDER BY agent) FROM bothy.agent_consumer_cursors`)
	wantText(t, db, "other=2 search=15 search=", `SELECT string_agg(kind || '=' || coalesce(last_seq::text, ''), ' ' ORDER BY kind, last_seq) FROM shop.positions`)
}

// atLock does something between the look at the sessions and the locks.
type atLock struct {
	finalize.Tx

	do func()
}

func (a atLock) Lock(ctx context.Context) (restore.State, error) {
	a.do()
	return a.Tx.Lock(ctx)
}

// A producer that comes after the look at the sessions, and appends before the counter is locked, is noticed.
func TestFinalizeRestoreLateProducer(t *testing.T) {
	t.Parallel()
	db, cfg := restored(t)
	before := everything(t, db)
	_, err := engine.FinalizeRestoreThrough(t.Context(), cfg, engine.FinalizeOptions{}, func(tx finalize.Tx) finalize.Tx {
		return atLock{tx, func() { connected(t, db.ProducerURL, "late shop") }}
	})
	if err == nil || !strings.Contains(err.Error(), "late shop") || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("got %v, want a refusal that names the late shop", err)
	}
	if diff := cmp.Diff(before, everything(t, db)); diff != "" {
		t.Errorf("something was changed (-before +after):\n%s", diff)
	}
}

// atAudit does something before the last step.
type atAudit struct {
	finalize.Tx

	do func()
}

func (a atAudit) Audit(ctx context.Context, action string, details any) (int64, error) {
	a.do()
	return a.Tx.Audit(ctx, action, details)
}

// A command that is stopped while it commits waits for the answer, and tells what became of it.
func TestFinalizeRestoreStoppedAtTheCommit(t *testing.T) {
	t.Parallel()
	db, cfg := restored(t)
	db.Exec(t, `CREATE FUNCTION shop.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END'`)
	db.Exec(t, `CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON bothy.instance DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION shop.slow()`)
	holder := enginetest.Connect(t, db.AdminURL)
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_lock(42)`); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := finalizing(ctx, cfg, nil)
	waitUntil(t, "the commit waits", func() bool { return waits(t, db) })
	stop()
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_unlock(42)`); err != nil {
		t.Fatal(err)
	}
	if e := <-ended; e.err != nil || e.report.End.Name != finalize.EndFinalized || e.report.EpochTo == e.report.EpochFrom {
		t.Errorf("got end %q and %v, want finalized: it was committed", e.report.End.Name, e.err)
	}
}

// When the reply to COMMIT is lost, nobody says that nothing was changed.
func TestFinalizeRestoreReplyLost(t *testing.T) {
	t.Parallel()
	db, _ := restored(t)
	proxy := enginetest.NewProxy(t, db.AdminURL)
	direct := *db
	direct.AdminURL = proxy.URL
	cfg := restorable(t, &direct, roleSections)
	epoch := text(t, db, `SELECT sync_epoch::text FROM bothy.instance`)
	db.Exec(t, `CREATE FUNCTION shop.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(43); RETURN NULL; END'`)
	db.Exec(t, `CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON bothy.instance DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION shop.slow()`)
	holder := enginetest.Connect(t, db.AdminURL)
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_lock(43)`); err != nil {
		t.Fatal(err)
	}
	ended := finalizing(t.Context(), cfg, nil)
	waitUntil(t, "the commit waits", func() bool { return waits(t, db) })
	proxy.LoseReplies()
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_unlock(43)`); err != nil {
		t.Fatal(err)
	}
	e := <-ended
	if e.report.End.Name != finalize.EndFailed || !finalize.Uncertain(e.err) || !strings.Contains(e.err.Error(), "engine restore status") || strings.Contains(e.err.Error(), "nothing was changed") {
		t.Errorf("got end %q and %v, want an error that leaves it open", e.report.End.Name, e.err)
	}
	if now := text(t, db, `SELECT sync_epoch::text FROM bothy.instance`); now == epoch {
		t.Error("it was not committed: the test does not lose the reply")
	}
}

// While a finalize is on its way no round runs and nothing is retried, also on a connection that was not there before.
func TestFinalizeRestoreKeepsRoundsOut(t *testing.T) {
	t.Parallel()
	db, cfg := partial(t)
	db.Exec(t, `INSERT INTO bothy.event_quarantine (consumer, seq, error_type, message, attempts) VALUES ('push', 5, 'rule', 'x', 1)`)
	jobs := db.Jobs(t, "test.push")
	r, err := engine.FinalizeRestoreThrough(t.Context(), cfg, engine.FinalizeOptions{Force: true}, func(tx finalize.Tx) finalize.Tx {
		return atAudit{tx, func() {
			e, err := engine.Open(t.Context(), cfg)
			if err != nil {
				t.Error(err)
				return
			}
			defer e.Close()
			if o, err := e.Round(t.Context(), "push"); err != nil || o.End.Name != "locked" {
				t.Errorf("a round meanwhile: got end %q, %v and %v, want locked", o.End.Name, o.Err, err)
			}
			if _, err := e.RetryQuarantined(t.Context(), "push", 5, "alex"); err == nil || !strings.Contains(err.Error(), "being finalized") {
				t.Errorf("a retry meanwhile: got %v, want it refused", err)
			}
		}}
	})
	if err != nil || r.End.Name != finalize.EndFinalized {
		t.Fatalf("got end %q and %v, want finalized", r.End.Name, err)
	}
	if now := db.Jobs(t, "test.push"); now != jobs {
		t.Errorf("%d jobs, want %d as before", now, jobs)
	}
}

// Whoever may become a producer is one, also where the role does not inherit.
func TestFinalizeRestoreRefusesWhoMayBecomeAProducer(t *testing.T) {
	t.Parallel()
	db, cfg := restored(t)
	member := strings.ReplaceAll(db.Name, "test", "authenticator")
	db.Exec(t, fmt.Sprintf(`CREATE ROLE %s LOGIN NOINHERIT PASSWORD 'bothy' IN ROLE bothy_producer`, member))
	t.Cleanup(func() { dropRole(t, db, member) })
	_, end := connected(t, as(t, db.ProducerURL, member, "bothy"), "gateway")
	r, err := engine.FinalizeRestore(t.Context(), cfg, engine.FinalizeOptions{})
	if err != nil || r.End.Name != finalize.EndRefused || len(r.Sessions) != 1 || r.Sessions[0].Role != member {
		t.Errorf("got end %q, sessions %v and %v, want a refusal that names %s", r.End.Name, r.Sessions, err, member)
	}
	end()
}

// What a table's triggers do is done as its owner, not as the administrator who finalizes.
func TestFinalizeRestoreRunsTriggersAsTheTablesOwner(t *testing.T) {
	t.Parallel()
	db, cfg := restored(t)
	for _, sql := range []string{
		`CREATE TABLE shop.seen (who text, super text)`,
		`GRANT USAGE ON SCHEMA shop TO bothy_producer`, `GRANT INSERT ON shop.seen TO bothy_producer`,
		`ALTER TABLE shop.positions OWNER TO bothy_producer`,
		`CREATE FUNCTION shop.look() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO shop.seen VALUES (current_user, current_setting(''is_superuser'')); RETURN NEW; END'`,
		`CREATE TRIGGER look BEFORE UPDATE ON shop.positions FOR EACH ROW EXECUTE FUNCTION shop.look()`,
	} {
		db.Exec(t, sql)
	}
	finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndFinalized)
	wantText(t, db, "bothy_producer off", `SELECT string_agg(DISTINCT who || ' ' || super, ', ') FROM shop.seen`)
}

// What plan, status and manifest read, the finalize reads too: the identity, as the role that connected.
func TestPlanRestoreReadsWhatFinalizeReads(t *testing.T) {
	t.Parallel()
	db, cfg := restored(t)
	db.Exec(t, `REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC`)
	plan, err := engine.PlanRestore(t.Context(), cfg, engine.FinalizeOptions{})
	if err != nil || plan.Answer != "differs" {
		t.Errorf("got answer %q and %v, want differs", plan.Answer, err)
	}
	finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndFinalized)
}

// A piece of the audit that is lost keeps nobody from finalizing, and nobody vouches for it.
func TestFinalizeRestoreWithADamagedAudit(t *testing.T) {
	t.Parallel()
	db, cfg := partial(t)
	db.Exec(t, `ALTER TABLE bothy.audit_events DISABLE TRIGGER USER`)
	db.Exec(t, `DELETE FROM bothy.audit_events WHERE seq = (SELECT max(seq) FROM bothy.audit_events)`)
	db.Exec(t, `ALTER TABLE bothy.audit_events ENABLE TRIGGER USER`)
	if _, _, err := engine.RestoreManifest(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "engine audit verify") {
		t.Errorf("a manifest: got %v, want it refused", err)
	}
	anotherTimeline(t, db)
	plan, err := engine.PlanRestore(t.Context(), cfg, engine.FinalizeOptions{})
	if err != nil || !plan.NewEpoch() || plan.State.Audit.Flaw == "" {
		t.Errorf("plan: got answer %q, audit %+v and %v, want a new epoch and the flaw", plan.Answer, plan.State.Audit, err)
	}
	finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndFinalized)
	wantText(t, db, "1", `SELECT count(*)::text FROM bothy.audit_events WHERE action = 'instance.restore_finalized'`)
}
