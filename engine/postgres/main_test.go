// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/bothy/engine/enginetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

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
