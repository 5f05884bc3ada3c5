// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Status is how far a database is migrated.
type Status struct {
	Schema     string
	Exists     bool  // the schema and its table of migrations
	TooOld     error // an *OldBinaryError when the database has outgrown this binary
	Migrations []MigrationState
	// JobsVersion is what the jobs schema has of River, JobsNeeded what this binary was built with. Both
	// are 0 when the options name no such schema.
	JobsVersion, JobsNeeded int
	Names                   []NameState
	Head                    int64 // the highest number of the log
	Partitions              int
	UpperBound              int64    // the first number without a partition
	Missing                 []string // statements that grant what the roles lack
}

// MigrationState is one migration that this binary carries or the database has.
type MigrationState struct {
	Version   int64
	File      string    // empty when only the database knows it
	AppliedAt time.Time // zero when it was not applied
}

// NameState is one consumer that is declared, known to the database, or both.
type NameState struct {
	Name     string
	Declared bool // in the options
	Known    bool // a cursor may have this name
	Cursor   bool // there is one
}

// Current reports whether Migrate would find nothing to do, as far as can be seen.
func (s Status) Current() bool {
	unknown := slices.ContainsFunc(s.Names, func(n NameState) bool { return n.Declared && !n.Known })
	return s.Exists && s.TooOld == nil && !s.pending() && !unknown && s.JobsVersion >= s.JobsNeeded && s.UpperBound > s.Head+1 && len(s.Missing) == 0
}

// MigrationStatus reads how far the database is, and changes nothing. The options are those of Migrate.
func MigrationStatus(ctx context.Context, o MigrateOptions) (Status, error) {
	m, err := newMigrator(ctx, o)
	if err != nil {
		return Status{}, err
	}
	defer m.close()
	s := Status{Schema: o.Schema}
	if err := m.status(ctx, &s); err != nil {
		return s, fmt.Errorf("read the state of schema %q: %w", o.Schema, Explain(err))
	}
	return s, nil
}

func (m *migrator) status(ctx context.Context, s *Status) error {
	applied, err := readApplied(ctx, m.conn, m.o.Schema)
	if err != nil {
		return err
	}
	s.Exists, s.TooOld = applied.exists, applied.tooOld(m.o.Schema, m.all)
	for _, file := range m.all {
		s.Migrations = append(s.Migrations, MigrationState{file.version, file.file, applied.at[file.version]})
	}
	for version, at := range applied.at {
		if m.fileOf(version) == "" {
			s.Migrations = append(s.Migrations, MigrationState{Version: version, AppliedAt: at})
		}
	}
	slices.SortFunc(s.Migrations, func(a, b MigrationState) int { return int(a.Version - b.Version) })
	if err := m.jobsStatus(ctx, s); err != nil {
		return err
	}
	if !s.Exists || s.pending() {
		return nil // the tables that the rest is about are not all there
	}
	if err := m.nameStatus(ctx, s); err != nil {
		return err
	}
	err = m.conn.QueryRow(ctx, fmt.Sprintf(`SELECT c.seq, c.upper_bound, (SELECT count(*) FROM %[1]s.event_log_partitions()) FROM %[1]s.event_seq c`, quote(m.o.Schema))).
		Scan(&s.Head, &s.UpperBound, &s.Partitions)
	if err != nil {
		return failed("read the counter of the event log", err)
	}
	return m.rightsStatus(ctx, s)
}

func (s Status) pending() bool {
	return slices.ContainsFunc(s.Migrations, func(m MigrationState) bool { return m.AppliedAt.IsZero() })
}

func (m *migrator) jobsStatus(ctx context.Context, s *Status) error {
	if m.o.JobsSchema == "" {
		return nil
	}
	state, err := readJobsState(ctx, m.conn, m.o.JobsSchema)
	if err != nil {
		return err
	}
	s.JobsVersion = state.version
	s.JobsNeeded, err = jobsNeeded()
	return err
}

func (m *migrator) nameStatus(ctx context.Context, s *Status) error {
	known, err := readNames(ctx, m.conn, m.o.Schema)
	if err != nil {
		return err
	}
	cursors, err := cursorNames(ctx, m.conn, m.o.Schema)
	if err != nil {
		return err
	}
	for _, name := range sortedUnion(sortedUnion(known, cursors), m.o.ConsumerNames) {
		s.Names = append(s.Names, NameState{
			Name: name, Declared: slices.Contains(m.o.ConsumerNames, name),
			Known: slices.Contains(known, name), Cursor: slices.Contains(cursors, name),
		})
	}
	return nil
}

// rightsStatus lists what the roles lack. A role that does not exist lacks everything, so it is named
// alone.
func (m *migrator) rightsStatus(ctx context.Context, s *Status) error {
	absent, err := m.absentRoles(ctx)
	if err != nil {
		return err
	}
	for _, role := range absent {
		s.Missing = append(s.Missing, roleSQL(role))
	}
	all := rights(m.o.Schema, m.report.App, m.o.Producers)
	if s.JobsVersion >= lineColumn {
		all = append(all, jobsRights(m.o.JobsSchema, m.report.App)...)
	}
	all = append(all, identityRights(m.report.App)...)
	all = slices.DeleteFunc(all, func(r right) bool { return slices.Contains(absent, r.role) })
	lacking, err := missing(ctx, m.conn, all)
	for _, r := range lacking {
		s.Missing = append(s.Missing, r.sql())
	}
	return err
}
