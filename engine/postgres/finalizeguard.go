// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/bothy/engine/restore"
)

// The words by which sessions are asked for.
const (
	roleApp       = "app"
	roleProducers = "producers"
)

// presenceKey is the advisory lock that every running engine of a schema holds shared, and a finalize takes alone.
// Advisory locks are per database.
func presenceKey(schema string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("bothy engine " + schema)) // never fails
	return int64(h.Sum64())                          //nolint:gosec // any 64 bits will do
}

// guardPause is the time between two looks at sessions that are about to end.
const guardPause = 100 * time.Millisecond

// Sessions are the connections that stand in the way. When there is none, the lock of running engines is taken, so
// that none begins until the transaction ends. A program that was stopped a moment ago may still be leaving: it is
// waited for.
func (t *FinalizeTx) Sessions(ctx context.Context, roles []string) ([]restore.Session, error) {
	deadline := time.Now().Add(t.r.o.Patience)
	for {
		found, err := t.sessions(ctx, roles)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			var free bool
			if err := t.pg.QueryRow(ctx, `SELECT pg_catalog.pg_try_advisory_xact_lock($1)`, presenceKey(t.r.o.Schema)).Scan(&free); err != nil {
				return nil, failed("keep engines out", err)
			}
			if free {
				return nil, nil
			}
			found = []restore.Session{{Role: "not visible", Engine: true}} // it came between the two statements
		}
		if time.Now().After(deadline) {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-time.After(guardPause):
		}
	}
}

// roleNames are the roles behind the words: those of the configuration, and the one that the server process connects as.
func (t *FinalizeTx) roleNames(words []string) ([]string, error) {
	var names []string
	for _, word := range words {
		switch word {
		case roleApp:
			config, err := pgx.ParseConfig(t.r.o.URL)
			if err != nil {
				return nil, unreadableURL(err)
			}
			names = append(names, config.User)
			if t.r.o.App != "" {
				names = append(names, t.r.o.App)
			}
		case roleProducers:
			names = append(names, t.r.o.Producers...)
		}
	}
	return sortedUnion(names, nil), nil
}

// sessions looks once. A session counts when its role is one of those named, or has the rights of one or may take them:
// whoever logs in as a member appends all the same. Superusers inherit everything and count only by their own name, and so do
// the owner and the role that looks. Other commands of this kind do not count: they take turns. A holder of the lock
// of running engines counts whatever its role is.
func (t *FinalizeTx) sessions(ctx context.Context, words []string) ([]restore.Session, error) {
	const doing = "look who is connected"
	names, err := t.roleNames(words)
	if err != nil {
		return nil, err
	}
	if _, err := t.pg.Exec(ctx, `SELECT pg_catalog.pg_stat_clear_snapshot()`); err != nil {
		return nil, failed(doing, err)
	}
	key := uint64(presenceKey(t.r.o.Schema)) //nolint:gosec // the same 64 bits
	// Who may become one of them acts with its rights too. What is only allowed to hand a role on may not, from 16 on.
	member := `pg_catalog.pg_has_role(r.oid, n.oid, 'MEMBER')`
	if t.r.tells {
		member = `(pg_catalog.pg_has_role(r.oid, n.oid, 'USAGE') OR pg_catalog.pg_has_role(r.oid, n.oid, 'SET'))`
	}
	rows, err := t.pg.Query(ctx, `WITH engines AS (
	SELECT DISTINCT l.pid FROM pg_catalog.pg_locks l
	WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid::bigint = $2 AND l.objid::bigint = $3
	AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) AND l.pid <> pg_catalog.pg_backend_pid()
), clients AS (
	SELECT a.* FROM pg_catalog.pg_stat_activity a LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.usesysid
	WHERE a.datname = current_database() AND a.pid <> pg_catalog.pg_backend_pid() AND coalesce(a.backend_type, 'client backend') = 'client backend'
	AND coalesce(a.application_name, '') NOT IN ('`+RestoreApplication+`', '`+GuardApplication+`', 'bothy-migrate', 'bothy-consumers')
	AND (r.rolname = ANY ($1) OR NOT r.rolsuper AND r.rolname NOT IN (session_user, $4)
		AND EXISTS (SELECT FROM pg_catalog.pg_roles n WHERE n.rolname = ANY ($1) AND NOT n.rolsuper AND `+member+`))
)
SELECT coalesce(a.pid, e.pid), coalesce(a.usename::text, 'not visible'), coalesce(a.application_name, ''), coalesce(host(a.client_addr), ''), a.backend_start, e.pid IS NOT NULL
FROM (SELECT pid FROM clients UNION SELECT pid FROM engines) s
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.pid LEFT JOIN engines e ON e.pid = s.pid
WHERE a.pid IS NOT NULL OR e.pid IS NOT NULL ORDER BY 1`, names, int64(key>>32), int64(key&0xffffffff), t.r.m.report.Owner)
	if err != nil {
		return nil, failed(doing, err)
	}
	var found []restore.Session
	var one restore.Session
	var since pgtype.Timestamptz
	_, err = pgx.ForEachRow(rows, []any{&one.PID, &one.Role, &one.Application, &one.Address, &since, &one.Engine}, func() error {
		one.Since = since.Time
		found = append(found, one)
		return nil
	})
	return found, failed(doing, err)
}
