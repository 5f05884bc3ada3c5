// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// right is one thing that a role must be allowed to do.
type right struct {
	kind   string // SCHEMA, TABLE, SEQUENCE or FUNCTION
	object string // as SQL, qualified and quoted; a function with its argument types
	verbs  string // SELECT, INSERT
	role   string
}

func (r right) sql() string {
	return "GRANT " + r.verbs + " ON " + r.kind + " " + r.object + " TO " + quote(r.role)
}

const (
	appendEvent  = "append_event(text, text, text, text[], jsonb, timestamptz, uuid)"
	appendEvents = "append_events(jsonb)"
)

// rights are those inside the engine's own schema. Nobody but the owner may write to the log, the counter
// or the stage, and nobody at all is given DELETE on cursors: a cursor that is gone would start again at
// the head.
func rights(schema, app string, producers []string) []right {
	in := func(name string) string { return quote(schema) + "." + name }
	all := []right{{"SCHEMA", quote(schema), "USAGE", app}}
	for _, table := range []string{"schema_migration", "instance", "event_seq", "event_log", "event_stage", "event_consumer_cursors"} {
		all = append(all, right{"TABLE", in(table), "SELECT", app})
	}
	all = append(all, right{"TABLE", in("event_consumer_cursors"), "INSERT, UPDATE", app})
	for _, function := range []string{
		appendEvent, appendEvents, "advance_cursor(text, bigint, bigint)",
		"make_partitions(bigint, integer)", "event_log_partitions()", "drop_expired_partition(interval)",
	} {
		all = append(all, right{"FUNCTION", in(function), "EXECUTE", app})
	}
	for _, producer := range producers {
		all = append(all, right{"SCHEMA", quote(schema), "USAGE", producer},
			right{"FUNCTION", in(appendEvent), "EXECUTE", producer},
			right{"FUNCTION", in(appendEvents), "EXECUTE", producer})
	}
	return all
}

// jobsRights are what the engine needs in River's schema: it inserts and looks, and never works a job.
func jobsRights(schema, app string) []right {
	in := func(name string) string { return quote(schema) + "." + name }
	return []right{
		{"SCHEMA", quote(schema), "USAGE", app},
		{"TABLE", in("river_job"), "SELECT, INSERT", app},
		{"SEQUENCE", in("river_job_id_seq"), "USAGE, SELECT", app},
		{"TABLE", in("river_migration"), "SELECT", app},
		{"TABLE", in("river_queue"), "SELECT", app},
	}
}

// identityRights read which server this is. PUBLIC has them unless the server was hardened.
func identityRights(app string) []right {
	var all []right
	for _, function := range []string{
		"pg_control_system()", "pg_control_checkpoint()", "pg_control_recovery()",
		"pg_current_wal_lsn()", "pg_walfile_name(pg_lsn)",
	} {
		all = append(all, right{"FUNCTION", "pg_catalog." + function, "EXECUTE", app})
	}
	return all
}

// missing keeps the rights that a role does not have.
func missing(ctx context.Context, conn Querier, all []right) ([]right, error) {
	var lacking []right
	for _, r := range all {
		for verb := range strings.SplitSeq(r.verbs, ", ") {
			var has bool
			check := fmt.Sprintf(`SELECT pg_catalog.has_%s_privilege($1::name, $2::text, $3)`, strings.ToLower(r.kind))
			object := r.object
			if r.kind == "SCHEMA" {
				check = `SELECT pg_catalog.has_schema_privilege($1::name, pg_catalog.to_regnamespace($2), $3)`
			}
			if err := conn.QueryRow(ctx, check, r.role, object, verb).Scan(&has); err != nil {
				return nil, failed("ask for the rights of the role "+r.role, err)
			}
			if !has {
				lacking = append(lacking, r)
				break
			}
		}
	}
	return lacking, nil
}

// grant gives the rights that are missing, and reports those that this role cannot give.
func (m *migrator) grant(ctx context.Context) error {
	lacking, err := missing(ctx, m.conn, rights(m.o.Schema, m.report.App, m.o.Producers))
	if err != nil {
		return err
	}
	for _, r := range lacking {
		err := m.asOwner(ctx, "grant a right", func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, r.sql())
			return err
		})
		if err != nil {
			return err
		}
		m.report.Grants = append(m.report.Grants, r.sql())
	}
	if err := m.grantJobs(ctx); err != nil {
		return err
	}
	lacking, err = missing(ctx, m.conn, identityRights(m.report.App))
	if err != nil {
		return err
	}
	return m.grantOrReport(ctx, lacking, m.o.Bootstrap)
}

// grantJobs gives the app its rights on River's tables when they are ours to give.
func (m *migrator) grantJobs(ctx context.Context) error {
	if m.o.JobsSchema == "" {
		return nil
	}
	state, err := readJobsState(ctx, m.conn, m.o.JobsSchema)
	if err != nil {
		return err
	}
	if state.version < lineColumn {
		m.report.Missing = append(m.report.Missing, state.advice(m.o.JobsSchema))
		return nil
	}
	lacking, err := missing(ctx, m.conn, jobsRights(m.o.JobsSchema, m.report.App))
	if err != nil {
		return err
	}
	return m.grantOrReport(ctx, lacking, m.o.JobsMigrate || m.o.Bootstrap)
}

// grantOrReport tries to grant as the connecting role, and reports what was not possible: the owner of
// these objects is somebody else, and the engine can do much of its work without them.
func (m *migrator) grantOrReport(ctx context.Context, lacking []right, try bool) error {
	for _, r := range lacking {
		if !try {
			m.report.Missing = append(m.report.Missing, r.sql())
			continue
		}
		err := retried(ctx, func() error { _, err := m.conn.Exec(ctx, r.sql()); return err })
		switch {
		case sqlState(err) == codeInsufficientRight:
			m.report.Missing = append(m.report.Missing, r.sql())
			continue
		case err != nil:
			return failed("grant a right", err)
		}
		// A role without the right to grant gets a warning, not an error.
		still, err := missing(ctx, m.conn, []right{r})
		if err != nil {
			return err
		}
		if len(still) > 0 {
			m.report.Missing = append(m.report.Missing, r.sql())
			continue
		}
		m.report.Grants = append(m.report.Grants, r.sql())
	}
	return nil
}
