// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/finalize"
	"example.com/bothy/engine/restore"
)

// connected opens a session that calls itself by a name, and ends it at the end of the test or before.
func connected(t *testing.T, url, application string) (pid int64, end func()) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["application_name"] = application
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	end = func() { _ = conn.Close(context.WithoutCancel(t.Context())) }
	t.Cleanup(end)
	return int64(conn.PgConn().PID()), end
}

// TestFinalizeRestore_RefusesWithConnectedApp: no session of the app or of a producer may be there, nor one that acts
// with their rights; each is named, and nothing is changed. Those of others do not matter.
func TestFinalizeRestore_RefusesWithConnectedApp(t *testing.T) {
	t.Parallel()
	db, cfg := restored(t)
	member := strings.ReplaceAll(db.Name, "test", "member")
	db.Exec(t, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'bothy' IN ROLE bothy_producer`, member))
	t.Cleanup(func() { dropRole(t, db, member) })
	before := everything(t, db)
	for _, tt := range []struct{ name, url, role string }{
		{"app", db.AppURL, "bothy_app"},
		{"producer", db.ProducerURL, "bothy_producer"},
		{"member of a producer", as(t, db.ProducerURL, member, "bothy"), member},
	} {
		pid, end := connected(t, tt.url, "shop backend")
		r, err := engine.FinalizeRestore(t.Context(), cfg, engine.FinalizeOptions{})
		if err != nil || r.End.Name != finalize.EndRefused || r.End.Failure != finalize.FailureSessions || len(r.Sessions) != 1 {
			t.Fatalf("%s: got end %q, sessions %v and error %v, want a refusal for one session", tt.name, r.End.Name, r.Sessions, err)
		}
		s := r.Sessions[0]
		if s.PID != pid || s.Role != tt.role || s.Application != "shop backend" || s.Since.IsZero() || s.Engine {
			t.Errorf("%s: got session %v, want pid %d, role %s, application shop backend", tt.name, s, pid, tt.role)
		}
		if diff := cmp.Diff(before, everything(t, db)); diff != "" {
			t.Errorf("%s: something was changed (-before +after):\n%s", tt.name, diff)
		}
		end()
	}
	connected(t, db.OwnerURL, "psql")
	connected(t, db.AdminURL, "psql")
	finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndFinalized)
}

// as is a URL with another user.
func as(t *testing.T, url, user, password string) string {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("host='%s' port=%d dbname='%s' user='%s' password='%s'", config.Host, config.Port, config.Database, user, password)
}

func dropRole(t *testing.T, db *enginetest.DB, role string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, db.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, `DROP ROLE `+role); err != nil {
		t.Error(err)
	}
}

// Where one role does everything, every other session of it counts.
func TestFinalizeRestoreWithOneRole(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("push"))
	anotherTimeline(t, db)
	db.Exec(t, `GRANT SELECT, UPDATE ON public.river_job TO bothy_owner`)
	cfg := restorable(t, db, "  admin_url: ${OWNER}\n  lock_timeout: 1m\n  roles: {owner: bothy_owner, app: bothy_owner}")
	_, end := connected(t, db.OwnerURL, "shop backend")
	r, err := engine.FinalizeRestore(t.Context(), cfg, engine.FinalizeOptions{})
	if err != nil || r.End.Name != finalize.EndRefused || len(r.Sessions) != 1 || r.Sessions[0].Application != "shop backend" {
		t.Fatalf("got end %q, sessions %v and %v, want a refusal for shop backend", r.End.Name, r.Sessions, err)
	}
	end()
	finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndFinalized)
}

// A running engine of any role holds a lock that a finalize sees, whatever role the engine connects as.
func TestFinalizeRestoreRefusesUnderARunningEngine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		role     engine.Role
		sections string
	}{
		{engine.RoleWorker, "consumer: {poll_interval: 1h}"},
		{engine.RoleWorker, "consumer: {poll_interval: 1h}\nsync: {notify: \"off\"}"},
		{engine.RoleAPI, "consumer: {poll_interval: 1h}"},
	} {
		t.Run(string(tt.role), func(t *testing.T) {
			t.Parallel()
			db := enginetest.New(t, enginetest.WithConsumers("push"))
			// The engine is no session of a role that the command knows.
			stranger := strings.ReplaceAll(db.Name, "test", "stranger")
			db.Exec(t, fmt.Sprintf(`CREATE ROLE %s LOGIN SUPERUSER PASSWORD 'bothy'`, stranger))
			t.Cleanup(func() { dropRole(t, db, stranger) })
			running, stop := context.WithCancel(t.Context())
			e := open(t, configureWith(t, as(t, db.AdminURL, stranger, "bothy"), tt.sections, entry{name: "push"}))
			ended := make(chan error, 1)
			go func() { ended <- e.Run(running, tt.role) }()
			waitUntil(t, "the engine shows that it runs", func() bool {
				return text(t, db, `SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted
					AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == "1"
			})
			// by force: an engine that sees another history lets go by itself
			force := engine.FinalizeOptions{Force: true}
			cfg := restorable(t, db, strings.Split(roleSections, "\nrestore:")[0])
			r, err := engine.FinalizeRestore(t.Context(), cfg, force)
			if err != nil || r.End.Name != finalize.EndRefused || len(r.Sessions) != 1 || !r.Sessions[0].Engine || r.Sessions[0].Role != stranger {
				t.Errorf("got end %q, sessions %v and %v, want a refusal that names the running engine", r.End.Name, r.Sessions, err)
			}
			stop()
			if err := <-ended; err != nil {
				t.Errorf("the engine ended with %v", err)
			}
			e.Close()
			finalized(t, cfg, force, finalize.EndFinalized)
		})
	}
}

// TestFinalizeTwiceAtOnce: of two at the same moment one does it and the other says that it is done: there is no
// second epoch (case 79).
func TestFinalizeTwiceAtOnce(t *testing.T) {
	t.Parallel()
	for _, one := range []bool{false, true} { // also where one role does everything, and each sees the other's session
		t.Run(fmt.Sprintf("one role %v", one), func(t *testing.T) {
			t.Parallel()
			db, cfg := restored(t)
			if one {
				db.Exec(t, `GRANT SELECT, UPDATE ON public.river_job TO bothy_owner`)
				cfg = restorable(t, db, "  admin_url: ${OWNER}\n  lock_timeout: 1m\n  roles: {owner: bothy_owner, app: bothy_owner}")
			}
			const many = 4
			type result struct {
				r   engine.FinalizeReport
				err error
			}
			results := make(chan result, many)
			for range many {
				go func() {
					r, err := engine.FinalizeRestore(t.Context(), cfg, engine.FinalizeOptions{})
					results <- result{r, err}
				}()
			}
			ends := map[string]int{}
			for range many {
				got := <-results
				if got.err != nil || got.r.End.Failure != "" {
					t.Errorf("got end %q, sessions %v and %v", got.r.End.Name, got.r.Sessions, got.err)
				}
				ends[got.r.End.Name]++
			}
			if ends[finalize.EndFinalized] != 1 || ends[finalize.EndAlready] != many-1 {
				t.Errorf("got the ends %v, want one finalized and the others already", ends)
			}
			wantText(t, db, "1", `SELECT count(*)::text FROM bothy.audit_events WHERE action = 'instance.restore_finalized'`)
		})
	}
}

// TestRelocationKeepsEpoch: with a manifest that fits, only the identity is stored; with one that differs in any field,
// nothing is, and the field is named with both values.
func TestRelocationKeepsEpoch(t *testing.T) {
	t.Parallel()
	db, cfg := restored(t)
	db.Exec(t, `UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id - 1000, environment = 'production'`)
	manifest, sessions, err := engine.RestoreManifest(t.Context(), cfg)
	if err != nil || len(sessions) != 0 {
		t.Fatalf("manifest: got sessions %v and %v", sessions, err)
	}
	written, err := manifest.Text()
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = restore.ParseManifest(written); err != nil {
		t.Fatalf("the manifest does not read what it writes: %v\n%s", err, written)
	}
	anotherTimeline(t, db)
	// What is faked is where the database comes from, so that is where the manifest comes from.
	if manifest.TimelineID, err = strconv.ParseInt(text(t, db, `SELECT pg_timeline_id::text FROM bothy.instance`), 10, 64); err != nil {
		t.Fatal(err)
	}
	before := everything(t, db)
	for field, change := range map[string]func(*restore.Manifest){
		"head_seq":    func(m *restore.Manifest) { m.HeadSeq++ },
		"head_event":  func(m *restore.Manifest) { m.HeadEvent = "01890000-0000-7000-8000-000000000000" },
		"audit_seq":   func(m *restore.Manifest) { m.AuditSeq-- },
		"audit_hash":  func(m *restore.Manifest) { m.AuditHash = strings.Repeat("ab", 32) },
		"sync_epoch":  func(m *restore.Manifest) { m.SyncEpoch = "01890000-0000-7000-8000-000000000000" },
		"environment": func(m *restore.Manifest) { m.Environment = "staging" },
	} {
		other := manifest
		change(&other)
		r := finalized(t, cfg, engine.FinalizeOptions{Manifest: &other}, finalize.EndDifferent)
		if len(r.Differences) != 1 || r.Differences[0].Field != field || r.Differences[0].Manifest == r.Differences[0].Database {
			t.Errorf("%s: got differences %v, want this one with both values", field, r.Differences)
		}
		if diff := cmp.Diff(before, everything(t, db)); diff != "" {
			t.Errorf("%s: something was changed (-before +after):\n%s", field, diff)
		}
	}
	// A counter that does not fit its log is a difference, also where the head is the one of the manifest.
	db.Exec(t, `UPDATE bothy.event_seq SET seq = 12`)
	if r := finalized(t, cfg, engine.FinalizeOptions{Manifest: &manifest}, finalize.EndDifferent); len(r.Differences) != 1 || r.Differences[0].Field != string(restore.CounterBehind) {
		t.Errorf("counter behind: got differences %v", r.Differences)
	}
	db.Exec(t, `UPDATE bothy.event_seq SET seq = 15`)

	kept := `SELECT jsonb_build_object('epoch', sync_epoch, 'consumers', (SELECT jsonb_agg(c) FROM bothy.event_consumer_cursors c),
		'agents', (SELECT jsonb_agg(c ORDER BY agent) FROM bothy.agent_consumer_cursors c), 'hooks', (SELECT jsonb_agg(c) FROM bothy.webhook_subscriptions c),
		'own', (SELECT jsonb_agg(c ORDER BY kind, last_seq) FROM shop.positions c), 'jobs', (SELECT jsonb_agg(j ORDER BY id) FROM public.river_job j))::text FROM bothy.instance`
	want := text(t, db, kept)
	r := finalized(t, cfg, engine.FinalizeOptions{Manifest: &manifest, By: "sam"}, finalize.EndRelocated)
	if got := text(t, db, kept); got != want {
		t.Errorf("a relocation changed epoch, cursors or jobs:\ngot  %s\nwant %s", got, want)
	}
	if r.EpochTo != r.EpochFrom || r.Deed == 0 {
		t.Errorf("got epochs %q to %q, deed %d, want the same epoch and a deed", r.EpochFrom, r.EpochTo, r.Deed)
	}
	wantText(t, db, "instance.relocated sam", `SELECT action || ' ' || (details ->> 'by') FROM bothy.audit_events ORDER BY seq DESC LIMIT 1`)
	finalized(t, cfg, engine.FinalizeOptions{Manifest: &manifest}, finalize.EndAlready)
	finalized(t, cfg, engine.FinalizeOptions{}, finalize.EndAlready)
	// A manifest of this very server, or of one that it is a cold copy of, is compared although there is nothing to store.
	here, _, err := engine.RestoreManifest(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	finalized(t, cfg, engine.FinalizeOptions{Manifest: &here}, finalize.EndAlready)
	here.HeadSeq += 1000
	if r := finalized(t, cfg, engine.FinalizeOptions{Manifest: &here}, finalize.EndDifferent); len(r.Differences) != 1 || r.Differences[0].Field != "head_seq" {
		t.Errorf("a cold copy that lacks events: got differences %v, want the head", r.Differences)
	}

	// The engine goes on where it stood.
	e := open(t, cfg)
	if err := e.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o, err := e.Round(t.Context(), "push"); err != nil || o.End.Name != "processed" || o.First != 11 {
		t.Errorf("the round after a relocation: got %s from %d, %v, %v, want processed from 11", o.End.Name, o.First, o.Err, err)
	}
}
