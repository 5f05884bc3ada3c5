// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"time"
)

// OldBinaryError says that the database was migrated by a newer engine, to a point where this one would
// do harm.
type OldBinaryError struct {
	Schema string
	Needed int64 // the newest migration that a binary must carry
	Has    int64 // the newest migration of this binary
}

func (e *OldBinaryError) Error() string {
	return fmt.Sprintf("this engine is too old for the database: the schema %q needs one that carries migration %d, and this one ends at %d: install a newer engine", e.Schema, e.Needed, e.Has)
}

// MissingMigrationError says that the database lacks what this binary needs.
type MissingMigrationError struct {
	Schema string
	Files  []string // missing, oldest first; empty when the schema itself is missing
}

func (e *MissingMigrationError) Error() string {
	if len(e.Files) == 0 {
		return fmt.Sprintf("the database has no schema %q with the engine's tables, or this role may not see it: run `engine migrate up`", e.Schema)
	}
	return fmt.Sprintf("the schema %q lacks the migration %s: run `engine migrate up` before this engine is started", e.Schema, e.Files[0])
}

// CheckSchema says whether this binary can work with the database, before anything is done with it. The
// connection may be that of the app. Each error says what to do.
func CheckSchema(ctx context.Context, conn Querier, schema, jobsSchema string) error {
	all, err := render(schema)
	if err != nil {
		return err
	}
	applied, err := readApplied(ctx, conn, schema)
	if err != nil {
		return Explain(err)
	}
	if err := applied.check(schema, all); err != nil {
		return err
	}
	if err := checkRows(ctx, conn, schema); err != nil {
		return Explain(err)
	}
	if err := checkCounter(ctx, conn, schema); err != nil {
		return Explain(err)
	}
	if jobsSchema == "" {
		return nil
	}
	needed, err := jobsNeeded()
	if err != nil {
		return err
	}
	state, err := readJobsState(ctx, conn, jobsSchema)
	if err != nil {
		return Explain(err)
	}
	if state.version < needed {
		return fmt.Errorf("jobs cannot be inserted: %s", state.advice(jobsSchema))
	}
	return nil
}

// appliedMigrations is what schema_migration says.
type appliedMigrations struct {
	exists bool
	at     map[int64]time.Time
	needs  int64 // the greatest oldest_binary
}

func readApplied(ctx context.Context, conn Querier, schema string) (appliedMigrations, error) {
	a := appliedMigrations{at: map[int64]time.Time{}}
	table := quote(schema) + ".schema_migration"
	err := conn.QueryRow(ctx, `SELECT pg_catalog.to_regclass($1) IS NOT NULL`, table).Scan(&a.exists)
	if sqlState(err) == codeInsufficientRight {
		return a, nil // without USAGE on the schema its tables cannot be seen
	}
	if err != nil || !a.exists {
		return a, failed("look for the engine's tables", err)
	}
	rows, err := conn.Query(ctx, `SELECT version, oldest_binary, `+sqlInstant("applied_at")+` FROM `+table)
	if err != nil {
		return a, failed("read the applied migrations", err)
	}
	defer rows.Close()
	for rows.Next() {
		var version, oldest int64
		var at string
		err := rows.Scan(&version, &oldest, &at)
		if err == nil {
			a.at[version], err = instant(at)
		}
		if err != nil {
			return a, failed("read the applied migrations", err)
		}
		a.needs = max(a.needs, oldest)
	}
	return a, failed("read the applied migrations", rows.Err())
}

func (a appliedMigrations) tooOld(schema string, all []migration) error {
	if newest := latest(all); a.needs > newest {
		return &OldBinaryError{Schema: schema, Needed: a.needs, Has: newest}
	}
	return nil
}

func (a appliedMigrations) check(schema string, all []migration) error {
	if !a.exists {
		return &MissingMigrationError{Schema: schema}
	}
	if err := a.tooOld(schema, all); err != nil {
		return err
	}
	if lacking := a.lacking(all); len(lacking) > 0 {
		return &MissingMigrationError{Schema: schema, Files: lacking}
	}
	return nil
}

func (a appliedMigrations) lacking(all []migration) []string {
	var files []string
	for _, m := range all {
		if _, ok := a.at[m.version]; !ok {
			files = append(files, m.file)
		}
	}
	return files
}

// MissingRowError says that a table which holds one row for the whole installation is empty.
type MissingRowError struct {
	Table string // qualified and quoted
	Holds string // what its row is
	Fix   string
}

func (e *MissingRowError) Error() string {
	return fmt.Sprintf("the table %s is empty: its one row is %s, and nothing runs without it (a partial restore leaves it so): %s", e.Table, e.Holds, e.Fix)
}

// checkRows refuses a schema whose counter or identity is gone. Every read of a round joins both, so a round
// would take their absence for that of its cursor.
func checkRows(ctx context.Context, conn Querier, schema string) error {
	if err := checkCounterRow(ctx, conn, schema); err != nil {
		return err
	}
	return checkRow(ctx, conn, missingInstance(schema))
}

func missingInstance(schema string) MissingRowError {
	return MissingRowError{
		Table: quote(schema) + ".instance", Holds: "the identity of the installation",
		Fix: "bring it back from the backup; or stop the producers, run `engine migrate up`, which makes it, and then `engine restore finalize`, since nobody knows whose history the cursors follow",
	}
}

func checkCounterRow(ctx context.Context, conn Querier, schema string) error {
	in := quote(schema) + "."
	return checkRow(ctx, conn, MissingRowError{
		Table: in + "event_seq", Holds: "the counter of the event log",
		Fix: "stop the producers and run `engine restore finalize`, which makes it from what the log and the cursors know",
	})
}

func checkRow(ctx context.Context, conn Querier, absent MissingRowError) error {
	var exists bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+absent.Table+`)`).Scan(&exists)
	if err != nil {
		return failed("look for "+absent.Holds, err)
	}
	if !exists {
		return &absent
	}
	return nil
}

// CounterBehindError says that the log holds numbers that its counter has not given: a partial restore leaves
// them so, and every append fails on a number that is taken.
type CounterBehindError struct {
	Schema           string
	Counter, Highest int64
}

func (e *CounterBehindError) Error() string {
	return fmt.Sprintf("the event log of schema %q holds number %d and its counter stands at %d: a restore left them apart, and appending fails: stop the producers and run `engine restore finalize`",
		e.Schema, e.Highest, e.Counter)
}

// checkCounter refuses a log with events above its counter.
func checkCounter(ctx context.Context, conn Querier, schema string) error {
	var head, highest int64
	err := conn.QueryRow(ctx, fmt.Sprintf(`SELECT c.seq, coalesce((SELECT max(l.seq) FROM %[1]s.event_log l WHERE l.seq > c.seq), c.seq)
FROM %[1]s.event_seq c`, quote(schema))).Scan(&head, &highest)
	if err != nil {
		return failed("read the counter of the event log", err)
	}
	if highest > head {
		return &CounterBehindError{Schema: schema, Counter: head, Highest: highest}
	}
	return nil
}
