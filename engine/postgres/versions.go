// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// versionTableSQL makes the table that remembers which migrations were applied. It comes before all of
// them, so it is no migration itself.
func versionTableSQL(schema string) string {
	return `CREATE TABLE ` + quote(schema) + `.schema_migration (
    version       bigint PRIMARY KEY,
    name          text NOT NULL,
    -- the newest migration that a binary must carry to work with this one
    oldest_binary integer NOT NULL,
    applied_at    timestamptz NOT NULL DEFAULT now()
)`
}

// migrationPatience is how long a migration waits for a lock before it starts over: producers queue up behind one
// that waits for a strong lock, while a reader such as pg_dump keeps that from it.
const migrationPatience = "500ms"

// applyOwn applies the migrations that the database lacks, each in a transaction of its own.
func (m *migrator) applyOwn(ctx context.Context) error {
	config, err := adminConfig(m.o.AdminURL)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET ROLE `+quote(m.report.Owner))
		return err
	}))
	defer func() { _ = db.Close() }() // nothing is in flight

	steps := make([]*goose.Migration, len(m.all))
	for i, file := range m.all {
		steps[i] = goose.NewGoMigration(file.version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			// without arguments, so all statements go at once
			_, err := tx.ExecContext(ctx, "SET LOCAL lock_timeout = '"+migrationPatience+"';\n"+file.text)
			return err
		}}, nil)
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, nil,
		goose.WithStore(versionStore{quote(m.o.Schema) + ".schema_migration"}),
		goose.WithGoMigrations(steps...), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	waits := false
	return retried(ctx, func() error {
		err := m.up(ctx, provider)
		if passes(err) && !waits {
			waits = true
			m.logf("%v: another session uses a table that this changes; trying again for a while", err)
		}
		return err
	})
}

// up applies what is left to apply, and reports it.
func (m *migrator) up(ctx context.Context, provider *goose.Provider) error {
	results, err := provider.Up(ctx)
	var partial *goose.PartialError
	if errors.As(err, &partial) {
		results = partial.Applied
	}
	for _, result := range results {
		name := m.fileOf(result.Source.Version)
		m.report.Migrations = append(m.report.Migrations, name)
		m.logf("applied migration %s", name)
	}
	if partial != nil {
		return failed("apply migration "+m.fileOf(partial.Failed.Source.Version), partial.Err)
	}
	return failed("apply the migrations", err)
}

// fileOf is the file of a migration, or "" when this binary does not carry it.
func (m *migrator) fileOf(version int64) string {
	for _, file := range m.all {
		if file.version == version {
			return file.file
		}
	}
	return ""
}

// versionStore lets goose keep its books in schema_migration. A migration writes its own row, in its own
// text, so that the same text works when a person runs it with psql.
type versionStore struct{ table string }

var errForwardOnly = errors.New("migrations only go forward: restore a backup to go back")

// Tablename is the table that the store reads.
func (s versionStore) Tablename() string { return s.table }

// TableExists is always true: the table is made with the schema.
func (s versionStore) TableExists(context.Context, database.DBTxConn) (bool, error) { return true, nil }

// CreateVersionTable is never called, see TableExists.
func (s versionStore) CreateVersionTable(context.Context, database.DBTxConn) error { return nil }

// Insert checks that the migration recorded itself.
func (s versionStore) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	if _, err := s.GetMigration(ctx, db, req.Version); err != nil {
		return fmt.Errorf("migration %04d did not add its row to schema_migration: %w", req.Version, err)
	}
	return nil
}

// Delete always fails.
func (s versionStore) Delete(context.Context, database.DBTxConn, int64) error { return errForwardOnly }

// GetMigration finds one applied migration.
func (s versionStore) GetMigration(ctx context.Context, db database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	result := database.GetMigrationResult{IsApplied: true}
	err := db.QueryRowContext(ctx, `SELECT applied_at FROM `+s.table+` WHERE version = $1`, version).Scan(&result.Timestamp)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, database.ErrVersionNotFound
	}
	return &result, err
}

// GetLatestVersion is the number of the newest applied migration; 0 stands for an empty schema.
func (s versionStore) GetLatestVersion(ctx context.Context, db database.DBTxConn) (version int64, err error) {
	err = db.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM `+s.table).Scan(&version)
	return version, err
}

// ListMigrations lists what was applied, newest first, down to the empty schema, which goose counts as 0.
func (s versionStore) ListMigrations(ctx context.Context, db database.DBTxConn) (list []*database.ListMigrationsResult, err error) {
	rows, err := db.QueryContext(ctx, `SELECT version FROM `+s.table+` ORDER BY version DESC`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err below reports what went wrong
	for rows.Next() {
		applied := database.ListMigrationsResult{IsApplied: true}
		if err := rows.Scan(&applied.Version); err != nil {
			return nil, err
		}
		list = append(list, &applied)
	}
	return append(list, &database.ListMigrationsResult{Version: 0, IsApplied: true}), rows.Err()
}
