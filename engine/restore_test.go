// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/finalize"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/restore"
	core "example.com/bothy/engine/round"
)

// roleSections are the sections of a configuration that names the roles of the test server and a table of cursors.
const roleSections = `  admin_url: ${ADMIN}
  lock_timeout: 1m
  roles: {owner: bothy_owner, app: bothy_app, producers: [bothy_producer]}
restore:
  cursors:
    - {table: shop.positions, column: last_seq, where: "kind = 'search'"}`

// restorable reads a configuration of one consumer, push, whose commands connect as the superuser.
func restorable(t testing.TB, db *enginetest.DB, sections string) *config.Config {
	t.Helper()
	text := "version: 1\ndatabase:\n  url: ${URL}\n" + sections + "\nconsumers:\n" +
		"  - {name: push, batch: 10, job: {kind: test.push}, recipients: {list: [alex, sam]}}\n"
	cfg, problems := config.Parse("consumers.yaml", []byte(text), func(name string) (string, bool) {
		switch name {
		case "URL":
			return db.AppURL, true
		case "ADMIN":
			return db.AdminURL, true
		case "OWNER":
			return db.OwnerURL, true
		default:
			return "", false
		}
	})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// restored is a database with a history: push has passed 10 of 15 events and made jobs, an agent, a webhook and a
// table of the user's stand elsewhere, and then the server became another one.
func restored(t testing.TB) (*enginetest.DB, *config.Config) {
	t.Helper()
	db := enginetest.New(t, enginetest.WithConsumers("push"))
	db.Exec(t, `CREATE SCHEMA shop`)
	db.Exec(t, `CREATE TABLE shop.positions (kind text, last_seq bigint)`)
	cfg := restorable(t, db, roleSections)
	e, err := engine.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Append(t, 15)
	if o, err := e.Round(t.Context(), "push"); err != nil || o.End.Name != "processed" {
		t.Fatalf("round: got %s, %v, %v", o.End.Name, o.Err, err)
	}
	e.Close()
	db.Exec(t, `UPDATE public.river_job SET state = 'completed', finalized_at = now() WHERE args ->> 'seq' = '1'`)
	db.Exec(t, `UPDATE public.river_job SET state = 'scheduled', scheduled_at = now() + interval '1 hour' WHERE args ->> 'seq' = '2'`)
	db.Exec(t, `INSERT INTO public.river_job (kind, args, max_attempts, state, tags) VALUES ('their.own', '{"seq": 1}', 5, 'available', '{}')`)
	db.Exec(t, `INSERT INTO bothy.agent_consumer_cursors (agent, acked_seq) VALUES ('alex', 4), ('sam', 15)`)
	db.Exec(t, `INSERT INTO bothy.webhook_subscriptions (id, url, last_delivered_seq) VALUES (gen_random_uuid(), 'https://example.com/hook', 7)`)
	db.Exec(t, `INSERT INTO shop.positions VALUES ('search', 3), ('search', NULL), ('other', 2)`)
	anotherTimeline(t, db)
	return db, cfg
}

// anotherTimeline makes the database one whose stored identity is that of an earlier history.
func anotherTimeline(t testing.TB, db *enginetest.DB) {
	t.Helper()
	db.Exec(t, `UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id + 1000`)
}

// everything is the whole state that a finalize may change, as one text.
func everything(t testing.TB, db *enginetest.DB) string {
	t.Helper()
	return text(t, db, `SELECT jsonb_pretty(jsonb_build_object(
	'instance', (SELECT jsonb_agg(i) FROM bothy.instance i), 'counter', (SELECT jsonb_agg(c) FROM bothy.event_seq c),
	'consumers', (SELECT jsonb_agg(c ORDER BY name) FROM bothy.event_consumer_cursors c),
	'agents', (SELECT jsonb_agg(c ORDER BY agent) FROM bothy.agent_consumer_cursors c),
	'hooks', (SELECT jsonb_agg(c ORDER BY id) FROM bothy.webhook_subscriptions c),
	'own', (SELECT jsonb_agg(c ORDER BY kind, last_seq) FROM shop.positions c),
	'jobs', (SELECT jsonb_agg(j ORDER BY id) FROM public.river_job j),
	'quarantine', (SELECT jsonb_agg(q ORDER BY consumer, seq) FROM bothy.event_quarantine q),
	'audit', (SELECT jsonb_agg(a ORDER BY seq) FROM bothy.audit_events a), 'audited', (SELECT jsonb_agg(c) FROM bothy.audit_seq c)))`)
}

// text is the one text that a query gives.
func text(t testing.TB, db *enginetest.DB, sql string) (s string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if err := conn.QueryRow(t.Context(), sql).Scan(&s); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return s
}

func wantText(t testing.TB, db *enginetest.DB, want, sql string) {
	t.Helper()
	if got := text(t, db, sql); got != want {
		t.Errorf("%s:\ngot  %s\nwant %s", sql, got, want)
	}
}

// finalized runs a finalize that has to come to an end of this name.
func finalized(t testing.TB, cfg *config.Config, o engine.FinalizeOptions, end string) engine.FinalizeReport {
	t.Helper()
	r, err := engine.FinalizeRestore(t.Context(), cfg, o)
	if err != nil || r.End.Name != end {
		t.Fatalf("finalize %+v: got end %q, sessions %v, differences %v and error %v, want end %s", o, r.End.Name, r.Sessions, r.Differences, err, end)
	}
	return r
}

// TestIdentityMismatch: what a finalize makes of the stored and the present identity.
func TestIdentityMismatch(t *testing.T) {
	t.Parallel()
	here := core.Identity{System: 7, Timeline: 3}
	for name, tt := range map[string]struct {
		stored, current core.Identity
		want            restore.Verdict
		changed         bool
		answer          string
	}{
		"same":               {here, here, restore.Same, false, "same"},
		"other timeline":     {here, core.Identity{System: 7, Timeline: 4}, restore.OtherTimeline, true, "differs"},
		"lower timeline":     {here, core.Identity{System: 7, Timeline: 1}, restore.OtherTimeline, true, "differs"},
		"other system":       {here, core.Identity{System: 8, Timeline: 3}, restore.OtherSystem, true, "differs"},
		"other database":     {core.Identity{System: 7, Timeline: 3, Database: 5}, core.Identity{System: 7, Timeline: 3, Database: 6}, restore.OtherDatabase, true, "differs"},
		"same database":      {core.Identity{System: 7, Timeline: 3, Database: 5}, core.Identity{System: 7, Timeline: 3, Database: 5}, restore.Same, false, "same"},
		"database unknown":   {here, core.Identity{System: 7, Timeline: 3, Database: 5}, restore.Same, false, "same"},
		"empty stored":       {core.Identity{}, here, restore.NeverStored, false, "same"},
		"half stored":        {core.Identity{System: 7}, here, restore.NeverStored, false, "same"},
		"cannot be read":     {here, core.Identity{}, restore.Unreadable, false, "unreadable"},
		"nothing is known":   {core.Identity{}, core.Identity{}, restore.Unreadable, false, "unreadable"},
		"half of it is read": {here, core.Identity{System: 7}, restore.Unreadable, false, "unreadable"},
	} {
		got := restore.Match(tt.stored, tt.current)
		if got != tt.want || got.Changed() != tt.changed {
			t.Errorf("%s: got %q, changed %v, want %q, %v", name, got, got.Changed(), tt.want, tt.changed)
		}
		zero := int64(0)
		state := restore.State{Stored: tt.stored, Current: tt.current, Counter: &zero}
		if answer := finalize.Decide(state, finalize.Options{}); answer != tt.answer {
			t.Errorf("%s: got answer %q, want %q", name, answer, tt.answer)
		}
	}
}

// A restored database gets a new epoch; every cursor goes to the head; jobs that were not finished are cancelled,
// those of others are left alone; one row of the audit tells it; and a second run finds nothing to do.
func TestFinalizeRestore(t *testing.T) {
	t.Parallel()
	db, cfg := restored(t)
	before := text(t, db, `SELECT sync_epoch::text FROM bothy.instance`)
	plan, err := engine.PlanRestore(t.Context(), cfg, engine.FinalizeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !plan.NewEpoch() || plan.Head != 15 || len(plan.Sessions) != 0 {
		t.Errorf("plan: got answer %s, head %d, sessions %v, want a new epoch at 15 with nobody connected", plan.Answer, plan.Head, plan.Sessions)
	}
	r := finalized(t, cfg, engine.FinalizeOptions{By: "alex"}, finalize.EndFinalized)
	epoch, err := uuid.Parse(r.EpochTo)
	if err != nil || epoch.Version() != 7 || r.EpochFrom != before || r.EpochTo == before {
		t.Errorf("epochs: got %q to %q (%v), want from %q to a new UUIDv7", r.EpochFrom, r.EpochTo, err, before)
	}
	wantText(t, db, r.EpochTo, `SELECT sync_epoch::text FROM bothy.instance`)
	wantText(t, db, "15 15 15 15", `SELECT concat_ws(' ', (SELECT last_seq FROM bothy.event_consumer_cursors),
		(SELECT string_agg(acked_seq::text, ' ') FROM bothy.agent_consumer_cursors), (SELECT last_delivered_seq FROM bothy.webhook_subscriptions))`)
	wantText(t, db, "other=2 search=15 search=", `SELECT string_agg(kind || '=' || coalesce(last_seq::text, ''), ' ' ORDER BY kind, last_seq) FROM shop.positions`)
	wantText(t, db, "test.push cancelled 18, test.push completed 2, their.own available 1",
		`SELECT string_agg(kind || ' ' || state || ' ' || n, ', ' ORDER BY kind, state::text) FROM (SELECT kind, state, count(*) AS n FROM public.river_job GROUP BY 1, 2) j`)
	wantText(t, db, "2", `SELECT count(*)::text FROM public.river_job WHERE metadata -> 'bothy_restore' ->> 'was' = 'scheduled' AND finalized_at IS NOT NULL`)
	wantJobs := []restore.JobCount{{Kind: "test.push", State: "available", Count: 16}, {Kind: "test.push", State: "scheduled", Count: 2}}
	if diff := cmp.Diff(wantJobs, r.Jobs); diff != "" {
		t.Errorf("settled jobs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(plan.Jobs, r.Jobs); diff != "" {
		t.Errorf("planned against settled jobs (-want +got):\n%s", diff)
	}

	var d finalize.Details
	if err := json.Unmarshal([]byte(text(t, db, `SELECT details::text FROM bothy.audit_events WHERE action = 'instance.restore_finalized'`)), &d); err != nil {
		t.Fatal(err)
	}
	if d.Abandoned == nil || *d.Abandoned != (restore.Range{First: 4, Last: 15}) || d.Head != 15 || d.By != "alex" || d.EpochFrom != before || d.EpochTo != r.EpochTo {
		t.Errorf("audit: got %+v, want the range 4 to 15 and the epochs", d)
	}
	var moved []string
	for _, m := range d.Cursors {
		moved = append(moved, fmt.Sprintf("%s %d", m.Table, m.Rows))
	}
	if got, want := strings.Join(moved, ", "), "event_consumer_cursors 1, agent_consumer_cursors 1, webhook_subscriptions 1, shop.positions 1"; got != want {
		t.Errorf("moved: got %s, want %s", got, want)
	}
	if want := []restore.Named{{Name: "push", From: 10, To: 15, Events: 5}}; !slices.Equal(d.Cursors[0].Named, want) {
		t.Errorf("consumers: got %v, want %v", d.Cursors[0].Named, want)
	}

	after := everything(t, db)
	finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndAlready)
	if diff := cmp.Diff(after, everything(t, db)); diff != "" {
		t.Errorf("a second finalize changed something (-before +after):\n%s", diff)
	}
	forced := finalized(t, cfg, engine.FinalizeOptions{Force: true}, finalize.EndFinalized)
	if forced.EpochFrom != r.EpochTo || forced.EpochTo == r.EpochTo {
		t.Errorf("--force: got %q to %q, want a third epoch", forced.EpochFrom, forced.EpochTo)
	}
}

// restore.jobs: keep leaves every job as it is, and counts them.
func TestFinalizeRestoreKeepsJobs(t *testing.T) {
	t.Parallel()
	db, _ := restored(t)
	cfg := restorable(t, db, strings.Replace(roleSections, "restore:", "restore:\n  jobs: keep", 1))
	r := finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndFinalized)
	wantText(t, db, "0", `SELECT count(*)::text FROM public.river_job WHERE state = 'cancelled'`)
	if len(r.Jobs) != 2 || r.JobsRule != restore.KeepJobs {
		t.Errorf("got jobs %v under the rule %q, want them counted and kept", r.Jobs, r.JobsRule)
	}
}

// failingTx does what a step does, and then fails it.
type failingTx struct {
	finalize.Tx

	at    int
	calls int
}

var errInjected = errors.New("injected")

func (f *failingTx) after(err error) error {
	f.calls++
	if err == nil && f.calls == f.at {
		return errInjected
	}
	return err
}

func (f *failingTx) Look(ctx context.Context) (restore.State, error) {
	s, err := f.Tx.Look(ctx)
	return s, f.after(err)
}

func (f *failingTx) Sessions(ctx context.Context, roles []string) ([]restore.Session, error) {
	s, err := f.Tx.Sessions(ctx, roles)
	return s, f.after(err)
}

func (f *failingTx) Lock(ctx context.Context) (restore.State, error) {
	s, err := f.Tx.Lock(ctx)
	return s, f.after(err)
}

func (f *failingTx) SetCounter(ctx context.Context, head int64) error {
	return f.after(f.Tx.SetCounter(ctx, head))
}

func (f *failingTx) SetEpoch(ctx context.Context, epoch string) error {
	return f.after(f.Tx.SetEpoch(ctx, epoch))
}

func (f *failingTx) Move(ctx context.Context, table, column string, to int64) (restore.Moved, error) {
	m, err := f.Tx.Move(ctx, table, column, to)
	return m, f.after(err)
}

func (f *failingTx) MoveDeclared(ctx context.Context, to int64) ([]restore.Moved, error) {
	m, err := f.Tx.MoveDeclared(ctx, to)
	return m, f.after(err)
}

func (f *failingTx) SettleJobs(ctx context.Context, rule restore.JobsRule, epoch string) ([]restore.JobCount, error) {
	j, err := f.Tx.SettleJobs(ctx, rule, epoch)
	return j, f.after(err)
}

func (f *failingTx) StoreIdentity(ctx context.Context, identity core.Identity, environment string) error {
	return f.after(f.Tx.StoreIdentity(ctx, identity, environment))
}

func (f *failingTx) Audit(ctx context.Context, action string, details any) (int64, error) {
	deed, err := f.Tx.Audit(ctx, action, details)
	return deed, f.after(err)
}

// TestFinalizeRestore_Atomic: whichever step fails, the last included, and when the commit itself fails, nothing is
// changed. The counter is behind its log, so that every step of the table has something to do.
func TestFinalizeRestore_Atomic(t *testing.T) {
	t.Parallel()
	db, cfg := restored(t)
	db.Exec(t, `UPDATE bothy.event_seq SET seq = 12`)
	before := everything(t, db)
	unchanged := func(what string) {
		t.Helper()
		if diff := cmp.Diff(before, everything(t, db)); diff != "" {
			t.Fatalf("%s: something was changed (-before +after):\n%s", what, diff)
		}
	}
	steps := 0
	for at := 1; ; at++ {
		f := &failingTx{at: at}
		r, err := engine.FinalizeRestoreThrough(t.Context(), cfg, engine.FinalizeOptions{}, func(tx finalize.Tx) finalize.Tx { f.Tx = tx; return f })
		if f.calls < at { // there is no such step: this one went through, so it comes last
			if err != nil || r.End.Name != finalize.EndFinalized {
				t.Fatalf("without a failure: got end %s and %v", r.End.Name, err)
			}
			break
		}
		steps++
		if !errors.Is(err, errInjected) || r.End.Name != finalize.EndFailed || r.EpochTo != r.EpochFrom || r.Deed != 0 {
			t.Errorf("failure of call %d: got end %q, epochs %q and %q, deed %d, error %v", at, r.End.Name, r.EpochFrom, r.EpochTo, r.Deed, err)
		}
		unchanged(fmt.Sprintf("failure of call %d", at))
		if at == 1 { // once: the commit is the same whatever went before
			db.Exec(t, `CREATE FUNCTION shop.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''the commit fails''; END'`)
			db.Exec(t, `CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON bothy.instance DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION shop.refuse()`)
			r, err := engine.FinalizeRestore(t.Context(), cfg, engine.FinalizeOptions{})
			if err == nil || !strings.Contains(err.Error(), "the commit fails") || r.End.Transaction == machine.Commit {
				t.Errorf("a commit that fails: got end %q and error %v", r.End.Name, err)
			}
			db.Exec(t, `DROP TRIGGER refuse ON bothy.instance`)
			unchanged("a commit that fails")
		}
	}
	if steps != 12 {
		t.Errorf("failed %d calls, want each of the 12 that the table makes", steps)
	}
	wantText(t, db, "15", `SELECT seq::text FROM bothy.event_seq`)
}

// A table of the user's own may keep its rows where they are, or hide them: then a reader would take events of the new
// history for events that it has seen. That is an error, and nothing is changed.
func TestFinalizeRestoreOwnTableThatResists(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		admin string // who finalizes
		setup []string
		want  string // in the error; empty: it goes through
	}{
		"a trigger keeps the rows": {"${ADMIN}", []string{
			`CREATE FUNCTION shop.keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
			`CREATE TRIGGER keep BEFORE UPDATE ON shop.positions FOR EACH ROW EXECUTE FUNCTION shop.keep()`,
		}, "1 rows of \"shop\".\"positions\" are not at the head 15"},
		"a trigger never goes back": {"${ADMIN}", []string{
			`UPDATE shop.positions SET last_seq = 900 WHERE kind = 'search' AND last_seq IS NOT NULL`,
			`CREATE FUNCTION shop.rise() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.last_seq := greatest(NEW.last_seq, OLD.last_seq); RETURN NEW; END'`,
			`CREATE TRIGGER rise BEFORE UPDATE ON shop.positions FOR EACH ROW EXECUTE FUNCTION shop.rise()`,
		}, "not at the head 15"},
		"rows are hidden from the owner alone": {"${ADMIN}", []string{`ALTER TABLE shop.positions ENABLE ROW LEVEL SECURITY`}, ""},
		"rows are hidden from everybody": {"${OWNER}", []string{
			`GRANT USAGE ON SCHEMA shop TO bothy_owner`, `GRANT SELECT, UPDATE ON shop.positions TO bothy_owner`, `ALTER TABLE shop.positions ENABLE ROW LEVEL SECURITY`,
		}, "BYPASSRLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, _ := restored(t)
			for _, sql := range tt.setup {
				db.Exec(t, sql)
			}
			cfg := restorable(t, db, strings.Replace(roleSections, "${ADMIN}", tt.admin, 1))
			before := everything(t, db)
			r, err := engine.FinalizeRestore(t.Context(), cfg, engine.FinalizeOptions{})
			if tt.want == "" {
				if err != nil || r.End.Name != finalize.EndFinalized {
					t.Fatalf("got end %q and %v, want finalized", r.End.Name, err)
				}
				wantText(t, db, "other=2 search=15 search=", `SELECT string_agg(kind || '=' || coalesce(last_seq::text, ''), ' ' ORDER BY kind, last_seq) FROM shop.positions`)
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got end %q and %v, want an error with %q", r.End.Name, err, tt.want)
			}
			if diff := cmp.Diff(before, everything(t, db)); diff != "" {
				t.Errorf("something was changed (-before +after):\n%s", diff)
			}
		})
	}
}

// After a finalize the doctor and why know that a history ended: no job of before is missing, and what came after is
// looked at as ever.
func TestExplainedAfterFinalize(t *testing.T) {
	t.Parallel()
	db, cfg := restored(t)
	finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndFinalized)
	db.Append(t, 2)
	e := open(t, cfg)
	if o, err := e.Round(t.Context(), "push"); err != nil || o.Events != 2 {
		t.Fatalf("round: got %d events, %v, %v, want 2", o.Events, o.Err, err)
	}
	for seq, want := range map[int64]engine.Verdict{4: engine.VerdictRestored, 12: engine.VerdictRestored, 16: engine.VerdictCreated} {
		x, err := e.Why(t.Context(), seq, engine.WhyOptions{})
		if err != nil || x.Consumers[0].Verdict != want {
			t.Errorf("why %d: got %+v, %v, want verdict %s", seq, x.Consumers, err, want)
		}
	}
	d, err := engine.Doctor(t.Context(), cfg, engine.DoctorOptions{})
	if err != nil || !d.Healthy || d.Consumers[0].Events != 2 {
		t.Errorf("doctor: got %+v, %v, want 2 events compared and nothing wrong", d, err)
	}
}
