// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// EngineApplication is the application name of the connections that run rounds, unless the URL gives another.
const EngineApplication = "bothy-engine"

// Session is one connection of a client to the database.
type Session struct {
	PID           int
	Application   string
	InTransaction bool
}

// Sessions are the connections to the database of url, without the one that asks.
func Sessions(ctx context.Context, url string) (sessions []Session, err error) {
	err = withConnection(ctx, url, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT pid, application_name, xact_start IS NOT NULL FROM pg_catalog.pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY pid`)
		if err != nil {
			return err
		}
		sessions, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Session])
		return err
	})
	return sessions, failed("look at the sessions", err)
}

// EndSession ends a connection from the side of the server, in whatever it does. It reports whether the session was
// still there.
func EndSession(ctx context.Context, url string, pid int) (there bool, err error) {
	err = withConnection(ctx, url, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT pg_catalog.pg_terminate_backend($1)`, pid).Scan(&there)
	})
	return there, failed(fmt.Sprintf("end the session %d", pid), err)
}

// HoldCursor keeps the cursor of a consumer locked for a while, or until ctx ends, as a forgotten transaction does.
// It waits for a round that has it.
func HoldCursor(ctx context.Context, url, schema, consumer string, hold time.Duration) error {
	err := withConnection(ctx, url, func(conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if _, err := tx.Exec(ctx, `SELECT FROM `+quote(schema)+`.event_consumer_cursors WHERE name = $1 FOR UPDATE`, consumer); err != nil {
			return err
		}
		timer := time.NewTimer(hold)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return nil
	})
	return failed(fmt.Sprintf("hold the cursor of consumer %q", consumer), err)
}

// EventIDs hands over the id of every event of the log, in order.
func EventIDs(ctx context.Context, url, schema string, each func(id string)) error {
	err := withConnection(ctx, url, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT id::text FROM `+quote(schema)+`.event_log ORDER BY seq`)
		if err != nil {
			return err
		}
		var id string
		_, err = pgx.ForEachRow(rows, []any{&id}, func() error { each(id); return nil })
		return err
	})
	return failed("read the ids of the events", err)
}

// withConnection runs use on a connection of its own.
func withConnection(ctx context.Context, url string, use func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return Explain(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return use(conn)
}
