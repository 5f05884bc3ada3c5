// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// CreateDatabase makes an empty database on the server that url connects to.
func CreateDatabase(ctx context.Context, url, name string) error {
	return onServer(ctx, url, `CREATE DATABASE `+quote(name))
}

// DropDatabase removes a database of the server that url connects to.
func DropDatabase(ctx context.Context, url, name string) error {
	return onServer(ctx, url, `DROP DATABASE `+quote(name))
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
