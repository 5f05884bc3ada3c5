// SPDX-License-Identifier: Apache-2.0

package devdb

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// What was committed survives every way to end the server, at the same URL, and clients see their connections end.
func TestRestart(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	s := mustStart(t, Options{Durable: true}, m)
	url := s.URL(Superuser, "postgres")
	ask(t, url, `CREATE TABLE kept (how text)`, `SELECT ''`)
	for i, how := range []Shutdown{Fast, Immediate, Killed} {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(t.Context()))
		ask(t, url, `INSERT INTO kept VALUES ('`+string(how)+`')`, `SELECT ''`)
		before := s.process().cmd.Process.Pid
		if err := s.Restart(t.Context(), how); err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		if after := s.process().cmd.Process.Pid; after == before {
			t.Errorf("%s: the server is still process %d", how, before)
		}
		if err := conn.Ping(t.Context()); err == nil {
			t.Errorf("%s: a connection from before still works", how)
		}
		if got := ask(t, url, `SELECT count(*)::text FROM kept`); got != strconv.Itoa(i+1) {
			t.Errorf("%s: %s rows, want %d", how, got, i+1)
		}
		select {
		case <-s.Done():
			t.Fatalf("%s: the server counts as ended", how)
		default:
		}
	}
	if err := s.Restart(t.Context(), "gently"); err == nil || !strings.Contains(err.Error(), `there is no shutdown "gently"`) {
		t.Errorf("an unknown shutdown: %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.Restart(t.Context(), Fast); err == nil || !strings.Contains(err.Error(), "it has ended") {
		t.Errorf("restart of a server that was stopped: %v", err)
	}
	wantNoHomes(t, m.bases[0])
}

// A restart that cannot come back is the end of the server, and leaves nothing.
func TestRestartThatFails(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	s := mustStart(t, Options{}, m)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Restart(ctx, Immediate); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("restart with a cancelled context: %v", err)
	}
	<-s.Done()
	if got := s.Trouble().Error(); !strings.Contains(got, "the private PostgreSQL has ended") {
		t.Errorf("Trouble = %s", got)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	wantNoHomes(t, m.bases[0])
}

// The death of one process ends every connection and no committed row.
func TestCrash(t *testing.T) {
	t.Parallel()
	s := mustStart(t, Options{Durable: true}, newMachine(t))
	url := s.URL(Superuser, "postgres")
	ask(t, url, `CREATE TABLE kept (n int)`, `INSERT INTO kept VALUES (1)`, `SELECT ''`)
	victim, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer victim.Close(context.WithoutCancel(t.Context()))
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.WithoutCancel(t.Context()))
	if err := s.Crash(int(victim.PgConn().PID())); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other connection ends too", func() bool { return other.Ping(t.Context()) != nil })
	eventually(t, "the server is back", func() bool {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return false
		}
		return conn.Close(t.Context()) == nil
	})
	if got := ask(t, url, `SELECT count(*)::text FROM kept`); got != "1" {
		t.Errorf("%s rows, want 1", got)
	}
	if err := s.Crash(os.Getpid()); err == nil || !strings.Contains(err.Error(), "is none of its own") {
		t.Errorf("crash of a foreign process: %v", err)
	}
}
