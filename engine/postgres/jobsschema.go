// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// lineColumn is the version of River since which its table of versions tells several lines apart.
const lineColumn = 5

// jobsState is what a schema holds of River.
type jobsState struct {
	table   bool   // river_migration exists
	version int    // the newest applied version of the main line; 0 for none
	owner   string // of river_migration
}

// jobsNeeded is the version of River's schema that this binary was built with.
func jobsNeeded() (int, error) {
	migrator, err := riverMigrator(nil, "")
	if err != nil {
		return 0, err
	}
	newest := 0
	for _, version := range migrator.AllVersions() {
		newest = max(newest, version.Version)
	}
	return newest, nil
}

func riverMigrator(pool *pgxpool.Pool, schema string) (*rivermigrate.Migrator[pgx.Tx], error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("read River's migrations: %w", err)
	}
	return migrator, nil
}

// readJobsState looks into that very schema: the search path could find another River.
func readJobsState(ctx context.Context, conn Querier, schema string) (jobsState, error) {
	var s jobsState
	var line bool
	err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_get_userbyid(c.relowner),
	EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'line' AND NOT a.attisdropped)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = 'river_migration'`, schema).Scan(&s.owner, &line)
	if errors.Is(err, pgx.ErrNoRows) {
		return s, nil
	}
	if err != nil {
		return s, failed("look for River's tables", err)
	}
	s.table = true
	query := `SELECT coalesce(max(version), 0) FROM ` + quote(schema) + `.river_migration`
	if line {
		query += ` WHERE line = 'main'`
	}
	if err := conn.QueryRow(ctx, query).Scan(&s.version); err != nil {
		return s, failed("read the version of River's tables", err)
	}
	return s, nil
}

// advice says how the schema gets the version that is needed.
func (s jobsState) advice(schema string) string {
	needed, err := jobsNeeded()
	if err != nil {
		return err.Error()
	}
	has := fmt.Sprintf("has version %d of River's tables", s.version)
	if !s.table {
		has = "has no tables of River"
	}
	return fmt.Sprintf("the schema %q (jobs.schema) %s and version %d is needed: run `river migrate-up --schema %s`, or set jobs.migrate: true and run `engine migrate up`", schema, has, needed, schema)
}

// applyJobs migrates River's tables when they are ours to migrate. Each version takes a transaction of its
// own: a later one uses values that an earlier one adds to a type.
func (m *migrator) applyJobs(ctx context.Context) error {
	if m.o.JobsSchema == "" || !m.o.JobsMigrate {
		return nil
	}
	needed, err := jobsNeeded()
	if err != nil {
		return err
	}
	state, err := readJobsState(ctx, m.conn, m.o.JobsSchema)
	if err != nil || state.version >= needed {
		return err
	}
	owner, err := m.jobsOwner(ctx, state)
	if err != nil {
		return err
	}
	// Another engine schema of this database may migrate the same River at the same moment.
	key := lockKey("river " + m.o.JobsSchema)
	if _, err := m.conn.Exec(ctx, `SELECT pg_catalog.pg_advisory_lock($1)`, key); err != nil {
		return failed("wait for another migration of River's tables to end", err)
	}
	admin, err := adminConfig(m.o.AdminURL)
	if err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig("")
	if err != nil {
		return fmt.Errorf("make a connection pool: %w", err)
	}
	config.ConnConfig, config.MaxConns = admin, 2
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET ROLE `+quote(owner))
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return failed("open a connection for River's migrations", err)
	}
	defer pool.Close()
	migrator, err := riverMigrator(pool, m.o.JobsSchema)
	if err != nil {
		return err
	}
	result, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	if err != nil {
		return failed("migrate River's tables in schema "+m.o.JobsSchema, err)
	}
	for _, version := range result.Versions {
		m.report.Jobs = append(m.report.Jobs, version.Version)
	}
	m.logf("migrated River's tables in schema %s to version %d", m.o.JobsSchema, needed)
	return nil
}

// makerRight lets the owner make River's tables in a schema.
func makerRight(schema, owner string) right {
	return right{"SCHEMA", quote(schema), "USAGE, CREATE", owner}
}

// jobsOwner is the role that River's tables belong to: whoever has them, else the engine's owner. It makes
// the schema, and the right to create in it, where that is possible.
func (m *migrator) jobsOwner(ctx context.Context, state jobsState) (string, error) {
	if state.table {
		return state.owner, nil
	}
	if err := m.makeSchemaNamed(ctx, m.o.JobsSchema); err != nil {
		return "", err
	}
	need := makerRight(m.o.JobsSchema, m.report.Owner)
	lacking, err := missing(ctx, m.conn, []right{need}, "")
	if err != nil || len(lacking) == 0 {
		return m.report.Owner, err
	}
	before := len(m.report.Missing)
	if err := m.grantOrReport(ctx, lacking, m.o.Bootstrap, true); err != nil {
		return "", err
	}
	if len(m.report.Missing) > before {
		return "", fmt.Errorf("the role %q may not create River's tables in schema %q: have an administrator run: %s", m.report.Owner, m.o.JobsSchema, need.sql())
	}
	return m.report.Owner, nil
}
