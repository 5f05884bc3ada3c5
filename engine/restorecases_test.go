// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"example.com/bothy/engine"
	"example.com/bothy/engine/api"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/finalize"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/restore"
)

// partial is a database whose consumer push has passed 10 of 15 events, on the server that its cursors follow. Parts
// of it are about to be restored from another moment.
func partial(t *testing.T) (*enginetest.DB, *config.Config) {
	t.Helper()
	db, cfg := restored(t)
	db.Exec(t, `UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id - 1000`)
	db.Exec(t, `DELETE FROM bothy.agent_consumer_cursors`)
	db.Exec(t, `DELETE FROM bothy.webhook_subscriptions`)
	db.Exec(t, `DELETE FROM shop.positions`)
	return db, cfg
}

// roundOf runs one round of push in an engine of its own.
func roundOf(t *testing.T, cfg *config.Config) engine.Outcome {
	t.Helper()
	e, err := engine.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	o, err := e.Round(t.Context(), "push")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// wantRepaired compares what the audit says that was put right.
func wantRepaired(t *testing.T, db *enginetest.DB, want ...restore.Flaw) {
	t.Helper()
	var d finalize.Details
	if err := json.Unmarshal([]byte(text(t, db, `SELECT details::text FROM bothy.audit_events WHERE action = 'instance.restore_finalized'`)), &d); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d.Repaired, want) {
		t.Errorf("the audit says that was repaired: got %+v, want %+v", d.Repaired, want)
	}
}

// wantHeld: the engine does no work on its database, and says what mends it.
func wantHeld(t *testing.T, e *engine.Engine) {
	t.Helper()
	held, ok := errors.AsType[*engine.HeldError](e.Prepare(t.Context()))
	if !ok || !slices.Equal(held.Reasons, []api.Reason{api.Unfinalized}) || !strings.Contains(held.Error(), "engine restore finalize") {
		t.Errorf("Prepare: got %v, want it held, with the command that mends it", held)
	}
}

// Case 69: after a restore the cursor is ahead of the log and the consumer is silent. The log and its counter come
// from an older dump: a round says so and nothing is taken for caught up. After a finalize, the new events are
// delivered, each once and under the new epoch, also those whose numbers the cursor had passed before.
func TestCase69CursorAheadOfTheLog(t *testing.T) {
	t.Parallel()
	db, cfg := partial(t)
	db.Exec(t, `DELETE FROM bothy.event_log WHERE seq > 7`)
	db.Exec(t, `UPDATE bothy.event_seq SET seq = 7`)
	db.Exec(t, `INSERT INTO bothy.event_quarantine (consumer, seq, error_type, message, attempts) VALUES ('push', 5, 'rule', 'x', 1), ('push', 9, 'rule', 'x', 1)`)
	o := roundOf(t, cfg)
	if o.End.Name != "ahead" || o.Err == nil || !strings.Contains(o.Err.Error(), "engine restore finalize") {
		t.Errorf("a cursor at 10 of a log of 7: got end %s and %v, want ahead, with the command that mends it", o.End.Name, o.Err)
	}
	e := open(t, cfg)
	wantHeld(t, e)
	if err := e.Look(t.Context()); err != nil { // as a running engine does
		t.Fatal(err)
	}
	e.Close()
	r := finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndFinalized)
	wantRepaired(t, db, restore.Flaw{Kind: restore.CursorAhead, Range: restore.Range{First: 8, Last: 10}, Table: "event_consumer_cursors", Name: "push"})
	// What was set aside above the head would be another event when it is retried.
	wantText(t, db, "5", `SELECT string_agg(seq::text, ' ') FROM bothy.event_quarantine`)
	if want := (restore.Aside{Above: 1, Stay: 1}); r.State.Aside != want || len(r.Jobs) > 0 && r.Jobs[0].Kind == "event_quarantine" {
		t.Errorf("in quarantine: got %+v and jobs %v, want %+v, and no events among the jobs", r.State.Aside, r.Jobs, want)
	}
	if got := r.Moved[0]; got.Ahead != 1 || got.Behind != 0 || got.Passed != nil {
		t.Errorf("moved: got %+v, want one cursor that stood ahead and skips nothing", got)
	}
	finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndAlready)
	db.Append(t, 5)
	if o := roundOf(t, cfg); o.End.Name != "processed" || o.First != 8 || o.Events != 5 {
		t.Errorf("after the finalize: got end %s, %d events from %d, %v, want 5 from 8", o.End.Name, o.Events, o.First, o.Err)
	}
	wantText(t, db, "8 9 10 11 12", `SELECT string_agg(seq::text, ' ' ORDER BY seq) FROM (
		SELECT DISTINCT (args ->> 'seq')::int AS seq FROM public.river_job WHERE args ->> 'epoch' = (SELECT sync_epoch::text FROM bothy.instance)) j`)
}

// Case 75: a copy of production starts sending. Until the finalize no round runs and nothing is inserted; the file of
// the copy says another environment, and the finalize takes that over. The scheduled jobs that came along with the
// copy never run.
func TestCase75CopyOfProduction(t *testing.T) {
	t.Parallel()
	db, _ := restored(t)
	db.Exec(t, `UPDATE bothy.instance SET environment = 'production'`)
	cfg := restorable(t, db, "  environment: staging\n"+roleSections)
	jobs := db.Jobs(t, "test.push")
	o := roundOf(t, restorable(t, db, roleSections))
	if o.End.Name != "unfinalized" || db.Jobs(t, "test.push") != jobs {
		t.Errorf("a round of a copy: got end %s and %d jobs, want unfinalized and %d", o.End.Name, db.Jobs(t, "test.push"), jobs)
	}
	plan, err := engine.PlanRestore(t.Context(), cfg, engine.FinalizeOptions{})
	if err != nil || plan.Environment != "staging" {
		t.Errorf("plan: got environment %q and %v, want staging", plan.Environment, err)
	}
	r := finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndFinalized)
	if r.Environment != "staging" {
		t.Errorf("got environment %q, want staging", r.Environment)
	}
	wantText(t, db, "staging", `SELECT environment FROM bothy.instance`)
	wantText(t, db, "0", `SELECT count(*)::text FROM public.river_job WHERE kind = 'test.push' AND state IN ('available', 'scheduled', 'retryable', 'running')`)

	// The same server under another label is most likely the wrong database: only --force goes on.
	production := restorable(t, db, "  environment: production\n"+roleSections)
	if r := finalized(t, production, engine.FinalizeOptions{}, finalize.EndForeign); r.End.Failure != finalize.FailureEnvironment {
		t.Errorf("got failure %q, want %q", r.End.Failure, finalize.FailureEnvironment)
	}
	wantText(t, db, "staging", `SELECT environment FROM bothy.instance`)
	finalized(t, production, engine.FinalizeOptions{Force: true}, finalize.EndFinalized)
}

// Case 77: counter or sequence behind the data after a partial restore, and the reverse. Appends fail loudly, no start
// goes on, and a finalize puts it right and says which numbers it was about.
func TestCase77CounterAgainstLog(t *testing.T) {
	t.Parallel()
	appendable := func(t *testing.T, db *enginetest.DB, cfg *config.Config, first int64) {
		t.Helper()
		finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndAlready)
		db.Append(t, 3)
		if o := roundOf(t, cfg); o.End.Name != "processed" || o.First != first || o.Events != 3 {
			t.Errorf("after the finalize: got end %s, %d events from %d, %v, want 3 from %d", o.End.Name, o.Events, o.First, o.Err, first)
		}
	}
	for name, tt := range map[string]struct {
		damage []string
		found  func(error) bool // what Open says; nil when it opens: then the engine holds still
		want   restore.Flaw
		first  int64 // the first event that is delivered again
	}{
		"behind": {
			[]string{`UPDATE bothy.event_seq SET seq = 12`},
			func(err error) bool { _, ok := errors.AsType[*postgres.CounterBehindError](err); return ok },
			restore.Flaw{Kind: restore.CounterBehind, Range: restore.Range{First: 13, Last: 15}},
			16,
		},
		"missing": {
			[]string{`DELETE FROM bothy.event_seq`},
			func(err error) bool { _, ok := errors.AsType[*postgres.MissingRowError](err); return ok },
			restore.Flaw{Kind: restore.CounterMissing, Range: restore.Range{First: 15, Last: 15}},
			16,
		},
		"missing with an empty log": {
			[]string{`DELETE FROM bothy.event_seq`, `DELETE FROM bothy.event_log`},
			func(err error) bool { _, ok := errors.AsType[*postgres.MissingRowError](err); return ok },
			restore.Flaw{Kind: restore.CounterMissing, Range: restore.Range{First: 10, Last: 10}},
			11, // above the cursor
		},
		"ahead": {
			[]string{`UPDATE bothy.event_seq SET seq = 20`},
			nil,
			restore.Flaw{Kind: restore.CounterAhead, Range: restore.Range{First: 16, Last: 20}},
			21,
		},
		"ahead of an empty log": {
			[]string{`DELETE FROM bothy.event_log`},
			nil,
			restore.Flaw{Kind: restore.CounterAhead, Range: restore.Range{First: 1, Last: 15}},
			16,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, cfg := partial(t)
			for _, sql := range tt.damage {
				db.Exec(t, sql)
			}
			e, err := engine.Open(t.Context(), cfg)
			switch {
			case err == nil && tt.found != nil:
				e.Close()
				t.Error("an engine starts on it")
			case err == nil:
				wantHeld(t, e)
				e.Close()
			case tt.found == nil || !tt.found(err) || !strings.Contains(err.Error(), "engine restore finalize"):
				t.Errorf("a start says %v, want the command that mends it", err)
			}
			finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndFinalized)
			wantRepaired(t, db, tt.want)
			appendable(t, db, cfg, tt.first)
		})
	}
}

// A running engine finds out that a table was put back under it, holds still, and goes on after the finalize.
func TestCursorPutBackUnderTheEngine(t *testing.T) {
	t.Parallel()
	db, cfg := partial(t)
	e := open(t, cfg)
	if err := e.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `UPDATE bothy.event_consumer_cursors SET last_seq = 700`)
	if err := e.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, e)
	finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndFinalized)
	if err := e.Prepare(t.Context()); err != nil {
		t.Errorf("after the finalize: %v", err)
	}
}

// The row of the installation is lost: a migration makes it, and does not pretend to know whose history the cursors
// follow. That the history ended is left to a finalize, which tells of it and moves the cursors.
func TestInstanceRowLost(t *testing.T) {
	t.Parallel()
	db, cfg := partial(t)
	epoch := text(t, db, `SELECT sync_epoch::text FROM bothy.instance`)
	db.Exec(t, `DELETE FROM bothy.instance`)
	_, err := postgres.Migrate(t.Context(), postgres.MigrateOptions{
		AdminURL: db.AdminURL, Schema: enginetest.Schema, Owner: enginetest.OwnerRole, App: enginetest.AppRole,
		ConsumerNames: []string{"push"}, JobsSchema: enginetest.JobsSchema, JobsMigrate: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	e := open(t, cfg)
	wantHeld(t, e)
	e.Close()
	r := finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndFinalized)
	if r.EpochTo == epoch || len(r.Jobs) == 0 {
		t.Errorf("got epoch %q after %q, and settled jobs %v, want another one and the jobs of before", r.EpochTo, epoch, r.Jobs)
	}
	wantText(t, db, "15", `SELECT last_seq::text FROM bothy.event_consumer_cursors`)
	again := open(t, cfg)
	if err := again.Prepare(t.Context()); err != nil {
		t.Errorf("after the finalize: %v", err)
	}
}
