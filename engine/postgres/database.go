// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// CreateDatabase makes an empty database on the server that url connects to.
func CreateDatabase(ctx context.Context, url, name string) error {
	return onServer(ctx, url, `CREATE DATABASE `+quote(name))
}

// lookLimit bounds a question to a server that no configuration speaks of.
const lookLimit = 10 * time.Second

// MayCreateDatabases reports whether the role that url connects as may create databases, and names the role.
func MayCreateDatabases(ctx context.Context, url string) (role string, may bool, err error) {
	conn, err := connectToLook(ctx, url, lookLimit)
	if err != nil {
		return "", false, err
	}
	defer closeSoon(ctx, conn)
	err = conn.QueryRow(ctx, `SELECT rolname, rolsuper OR rolcreatedb FROM pg_catalog.pg_roles WHERE rolname = current_user`).Scan(&role, &may)
	return role, may, failed("ask what the role may", err)
}

// DropDatabase removes a database of the server that url connects to, and ends the sessions in it.
func DropDatabase(ctx context.Context, url, name string) error {
	return onServer(ctx, url, `DROP DATABASE `+quote(name)+` WITH (FORCE)`)
}

// DropIdleDatabase removes a database that nobody is connected to.
func DropIdleDatabase(ctx context.Context, url, name string) error {
	return onServer(ctx, url, `DROP DATABASE `+quote(name))
}

// IdleDatabases are the databases of the server that url connects to whose names begin with prefix and
// that nobody is connected to, by name.
func IdleDatabases(ctx context.Context, url, prefix string) ([]string, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, Explain(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, `SELECT datname FROM pg_catalog.pg_database d
WHERE starts_with(datname, $1) AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a WHERE a.datid = d.oid)
ORDER BY datname`, prefix)
	if err != nil {
		return nil, Explain(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, Explain(err)
}

// setUp marks a database on which SetUp has run, as its comment.
const setUp = "bothy: set up"

// SetUp runs SQL of the user on the database that url connects to, once: a second call does nothing and
// gives false. The SQL is one transaction unless it says otherwise; when it fails, it runs again next time.
func SetUp(ctx context.Context, url, sql string) (ran bool, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return false, Explain(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var comment string
	if err := conn.QueryRow(ctx, `SELECT coalesce(shobj_description(oid, 'pg_database'), '') FROM pg_catalog.pg_database WHERE datname = current_database()`).Scan(&comment); err != nil {
		return false, failed("look whether the database is set up", err)
	}
	if comment == setUp {
		return false, nil
	}
	if err := runScript(ctx, conn, sql); err != nil {
		return false, err
	}
	_, err = conn.Exec(ctx, `DO $$ BEGIN EXECUTE format('COMMENT ON DATABASE %I IS %L', current_database(), '`+setUp+`'); END $$`)
	return true, failed("note that the database is set up", err)
}

// onServer runs one statement on a connection of its own.
func onServer(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return Explain(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, sql)
	return Explain(err)
}
