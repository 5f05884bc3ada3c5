// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
)

// enginesOf starts processes of `engine run` on one database.
type enginesOf struct {
	db   *enginetest.DB
	bin  string
	file string
}

// newEngines migrates a database for a configuration without its first lines.
func newEngines(t *testing.T, sections string, names ...string) enginesOf {
	t.Helper()
	e := enginesOf{db: enginetest.New(t, enginetest.WithConsumers(names...)), bin: binary(t), file: filepath.Join(t.TempDir(), "consumers.yaml")}
	text := "version: 1\ndatabase: {url: '${BOTHY_DATABASE_URL}', statement_timeout: 5s, idle_in_tx_timeout: 500ms}\nconsumer: {poll_interval: 50ms}\n" + sections
	if err := os.WriteFile(e.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return e
}

// engineProcess is one of them.
type engineProcess struct {
	cmd  *exec.Cmd
	said *lastWords
	done chan error
}

// start starts one and waits until it works. It is killed when the test ends.
func (e enginesOf) start(t *testing.T) engineProcess {
	t.Helper()
	p := engineProcess{said: &lastWords{}, done: make(chan error, 1)}
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(e.bin, "engine"), "run", "--config", e.file)
	p.cmd.Env = append(os.Environ(), databaseVariable+"="+e.db.AppURL)
	p.cmd.Stderr = p.said
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("engine %d said:\n%s\nsessions:\n%s", p.cmd.Process.Pid, p.said, value(t, e.db, `
				SELECT string_agg(concat_ws(' ', pid, application_name, state, wait_event_type, wait_event, pg_blocking_pids(pid), now() - xact_start, left(query, 200)), E'\n')
				FROM pg_stat_activity WHERE datname = current_database()`))
		}
		_ = p.cmd.Process.Kill() // the test may have ended it
		_ = p.ends()             // it was killed
	})
	eventually(t, "the engine has begun", func() bool {
		select {
		case err := <-p.done:
			p.done <- err
			t.Fatalf("the engine ended with %v:\n%s", err, p.said)
		default:
		}
		return p.said.has(chaosStarted)
	})
	return p
}

// signal sends a signal.
func (p engineProcess) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %v: %v", s, err)
	}
}

// ends waits for the end, and puts it back for the cleanup.
func (p engineProcess) ends() error {
	err := <-p.done
	p.done <- err
	return err
}

// value is what a query gives.
func value(t *testing.T, db *enginetest.DB, sql string) string {
	t.Helper()
	got, err := rowsOf(db.AdminURL, sql)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// wantOnce checks that the consumer push has the jobs of alex and sam once for every event, and no others, and that its cursor
// is at the head.
func wantOnce(t *testing.T, db *enginetest.DB, events int) {
	t.Helper()
	const name = "push"
	got := value(t, db, fmt.Sprintf(`SELECT count(*), count(DISTINCT (args ->> 'seq', args ->> 'recipient')), count(DISTINCT args ->> 'seq'), min((args ->> 'seq')::int), max((args ->> 'seq')::int)
FROM public.river_job WHERE '%s' = ANY (tags) AND args ->> 'recipient' IN ('alex', 'sam')`, name))
	if want := fmt.Sprintf("%d|%d|%d|1|%d", 2*events, 2*events, events, events); got != want {
		t.Errorf("consumer %s: jobs, distinct ones, events, first and last are %s, want %s", name, got, want)
	}
	if got := cursorIs(t, db); got != fmt.Sprint(events) {
		t.Errorf("consumer %s: the cursor is at %s, want %d", name, got, events)
	}
}

func cursorIs(t *testing.T, db *enginetest.DB) string {
	t.Helper()
	return value(t, db, `SELECT last_seq FROM bothy.event_consumer_cursors WHERE name = 'push'`)
}

// An engine that is killed or frozen in a round, wherever in it, costs no job and makes none twice, and another engine goes
// on by itself. What holds the round up is a lock of the test's.
func TestEngineKilledInARound(t *testing.T) {
	t.Parallel()
	moments := map[string]string{
		"rule":    `SELECT pg_advisory_lock(1)`,
		"jobs":    `LOCK TABLE public.river_job IN SHARE MODE`,
		"advance": `LOCK TABLE bothy.event_consumer_cursors IN SHARE MODE`,
	}
	for moment, lock := range moments {
		for fault, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "frozen": syscall.SIGSTOP} {
			t.Run(fault+" at "+moment, func(t *testing.T) {
				t.Parallel()
				const events = 60
				e := newEngines(t, `consumers:
  - name: push
    job: {kind: test.push}
    recipients: {query: "SELECT b.seq, p.person AS recipient FROM batch b, unnest('{alex,sam}'::text[]) AS p (person), (SELECT pg_advisory_xact_lock_shared(1)::text OFFSET 0) wait"}
`, "push")
				victim := e.start(t)
				holder := enginetest.Connect(t, e.db.AdminURL)
				if _, err := holder.Exec(t.Context(), `BEGIN; `+lock); err != nil {
					t.Fatal(err)
				}
				e.db.Append(t, events)
				eventually(t, "the round is held up", func() bool {
					return value(t, e.db, `SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'bothy-engine' AND wait_event_type = 'Lock'`) == "true"
				})
				victim.signal(t, signal)
				if _, err := holder.Exec(t.Context(), `ROLLBACK; SELECT pg_advisory_unlock_all()`, pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
				other := e.start(t)
				eventually(t, "the other engine has caught up", func() bool { return cursorIs(t, e.db) == fmt.Sprint(events) })
				if fault == "frozen" {
					victim.signal(t, syscall.SIGCONT)
					e.db.Append(t, 1)
					eventually(t, "both go on", func() bool { return cursorIs(t, e.db) == fmt.Sprint(events+1) })
					wantOnce(t, e.db, events+1)
				} else {
					wantOnce(t, e.db, events)
				}
				for _, p := range []engineProcess{victim, other} {
					if p.cmd == victim.cmd && fault == "killed" {
						continue
					}
					p.signal(t, syscall.SIGTERM)
					if err := p.ends(); err != nil {
						t.Errorf("after SIGTERM an engine ended with %v:\n%s", err, p.said)
					}
				}
			})
		}
	}
}

// An engine that is at work while a newer engine's migration adds to the schema goes on, and so does one of its kind that
// starts afterwards: old and new run side by side, and nothing is lost or doubled. The migration is made up; it adds columns to the tables
// that every round reads, and says that the engines of today may stay.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	e := newEngines(t, "consumers:\n  - {name: push, batch: 5, job: {kind: test.push}, recipients: {list: [alex, sam]}}\n", "push")
	before := e.start(t)
	e.db.Append(t, 40)
	eventually(t, "the engine works", func() bool { return cursorIs(t, e.db) == "40" })

	events := 40
	for i, sql := range []string{
		`ALTER TABLE bothy.event_log ADD COLUMN trace text NOT NULL DEFAULT ''; ALTER TABLE bothy.event_log ALTER COLUMN type TYPE varchar`,
		`ALTER TABLE bothy.event_consumer_cursors ADD COLUMN paused boolean NOT NULL DEFAULT false; ALTER TABLE bothy.instance ADD COLUMN note text`,
		`INSERT INTO bothy.schema_migration (version, name, oldest_binary) VALUES (9999, 'made_up', 1)`,
	} {
		e.db.Exec(t, sql, pgx.QueryExecModeSimpleProtocol)
		e.db.Append(t, 20)
		events += 20
		eventually(t, fmt.Sprintf("the engine goes on after step %d of the migration", i+1), func() bool { return cursorIs(t, e.db) == fmt.Sprint(events) })
	}
	after := e.start(t)
	for range 10 {
		e.db.Append(t, 10)
		events += 10
	}
	eventually(t, "both go on", func() bool { return cursorIs(t, e.db) == fmt.Sprint(events) })
	before.signal(t, syscall.SIGTERM)
	if err := before.ends(); err != nil {
		t.Errorf("the engine from before ended with %v:\n%s", err, before.said)
	}
	e.db.Append(t, 10)
	events += 10
	eventually(t, "the engine that is left goes on", func() bool { return cursorIs(t, e.db) == fmt.Sprint(events) })
	wantOnce(t, e.db, events)
	for name, p := range map[string]engineProcess{"before": before, "after": after} {
		// one round of each connection may meet a plan of before; it is done again, and no page goes out for more
		if n := strings.Count(p.said.String(), "event consumer round failed"); n > 2 {
			t.Errorf("the engine from %s failed %d times:\n%s", name, n, p.said)
		}
	}

	// A migration that the engines of today may not work with refuses the next start of one, and harms none that runs.
	e.db.Exec(t, `INSERT INTO bothy.schema_migration (version, name, oldest_binary) VALUES (10000, 'made_up_too', 10000)`)
	e.db.Append(t, 10)
	events += 10
	eventually(t, "the engine that runs goes on", func() bool { return cursorIs(t, e.db) == fmt.Sprint(events) })
	tooOld := exec.CommandContext(t.Context(), filepath.Join(e.bin, "engine"), "run", "--config", e.file)
	tooOld.Env = append(os.Environ(), databaseVariable+"="+e.db.AppURL)
	out, err := tooOld.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "this engine is too old for the database") {
		t.Errorf("an engine that is too old: %v\n%s", err, out)
	}
	wantOnce(t, e.db, events)
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("waited too long until %s", what)
		}
	}
}

// Case 88: the first signal lets the round end in its time, the second ends the process at once. Nothing of the round is
// there afterwards.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	e := newEngines(t, "consumers:\n  - {name: push, job: {kind: test.push}, recipients: {list: [alex, sam]}}\n", "push")
	p := e.start(t)
	holder := enginetest.Connect(t, e.db.AdminURL)
	if _, err := holder.Exec(t.Context(), `BEGIN; LOCK TABLE public.river_job IN SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	e.db.Append(t, 3)
	eventually(t, "the round is held up", func() bool {
		return value(t, e.db, `SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'bothy-engine' AND wait_event_type = 'Lock'`) == "true"
	})
	p.signal(t, syscall.SIGTERM)
	// The handler of the first signal gives way to that of the system a moment later: until then, a further one changes nothing.
	eventually(t, "a further signal ends it", func() bool {
		select {
		case err := <-p.done:
			p.done <- err
			return true
		default:
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended meanwhile
			return false
		}
	})
	var ended *exec.ExitError
	if err := p.ends(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM { //nolint:forcetypeassert // so it is on unix
		t.Errorf("it ended with %v, want the signal itself:\n%s", err, p.said)
	}
	if _, err := holder.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	e.start(t)
	eventually(t, "the next engine has caught up", func() bool { return cursorIs(t, e.db) == "3" })
	wantOnce(t, e.db, 3)
}

// Case 88: an engine whose database does not answer while it starts ends at the first signal.
func TestSignalWhileItStarts(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	reached := make(chan net.Conn)
	go func() {
		defer close(reached)
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			reached <- conn
		}
	}()
	file := filepath.Join(t.TempDir(), "consumers.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nconsumers:\n  - {name: push, job: {kind: test.push}, recipients: none}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(binary(t), "engine"), "run", "--config", file)
	host, port, _ := strings.Cut(silent.Addr().String(), ":")
	cmd.Env = append(os.Environ(), "PGHOST="+host, "PGPORT="+port, "PGUSER=alex", "PGDATABASE=shop", "PGSSLMODE=disable")
	said := &lastWords{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn := <-reached
	defer conn.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended: // with either code: it had not begun
		t.Logf("it ended with %v", err)
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		t.Fatalf("it did not end at the signal while it connects:\n%s", said)
	}
	silent.Close()
	for conn := range reached {
		conn.Close()
	}
}
