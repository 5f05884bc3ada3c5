// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"slices"
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

// Need is something that the roles lack and that has to be given to them.
type Need struct {
	Do    string // the statement to run, or what else to do
	Role  string // who lacks it; empty when it is no right
	Stops bool   // the engine does no work without it; else it is for a restore guard that is off
}

// need is a right as somebody who lacks it sees it.
func (r right) need(stops bool) Need { return Need{Do: r.sql(), Role: r.role, Stops: stops} }

func (r right) sql() string {
	return "GRANT " + r.verbs + " ON " + r.kind + " " + r.object + " TO " + quote(r.role)
}

// stopping keeps what the engine cannot start without.
func stopping(needs []Need) []Need {
	return slices.DeleteFunc(slices.Clone(needs), func(n Need) bool { return !n.Stops })
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
	for _, table := range []string{"schema_migration", "instance", "event_seq", "event_log", "event_consumer_cursors", "audit_events", "audit_seq", "event_quarantine", "event_log_hold"} {
		all = append(all, right{"TABLE", in(table), "SELECT", app})
	}
	all = append(all, right{"TABLE", in("event_consumer_cursors"), "INSERT, UPDATE", app})
	// what is set aside leaves only by lock_quarantined and settle_quarantined, which write to the audit
	all = append(all, right{"TABLE", in("event_quarantine"), "INSERT", app})
	for _, function := range []string{
		appendEvent, appendEvents, "advance_cursor(text, bigint, bigint)",
		"record_loss(text, bigint, bigint)", "make_partitions(bigint, integer)", "drop_expired_partition(interval, text[], boolean, bigint, bigint)",
		"lock_quarantined(text, bigint)", "settle_quarantined(text, bigint, text, jsonb)",
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
		{"SEQUENCE", in("river_job_id_seq"), "USAGE", app},
		{"TABLE", in("river_migration"), "SELECT", app},
	}
}

// identityRights read which server this is. PUBLIC has them unless the server was hardened.
func identityRights(app string) []right {
	var all []right
	for _, function := range identityFunctions {
		all = append(all, right{"FUNCTION", "pg_catalog." + function, "EXECUTE", app})
	}
	return all
}

// sqlHas asks for one verb of a right. Each is NULL when there is no such object.
var sqlHas = map[string]string{
	"SCHEMA":   `SELECT pg_catalog.has_schema_privilege($1::name, pg_catalog.to_regnamespace($2), $3)`,
	"TABLE":    `SELECT pg_catalog.has_table_privilege($1::name, pg_catalog.to_regclass($2), $3)`,
	"SEQUENCE": `SELECT pg_catalog.has_sequence_privilege($1::name, pg_catalog.to_regclass($2), $3)`,
	"FUNCTION": `SELECT pg_catalog.has_function_privilege($1::name, pg_catalog.to_regprocedure($2), $3)`,
}

// missing keeps the rights that a role does not have. On what does not exist nobody has a right but owner,
// whose it will be.
func missing(ctx context.Context, conn Querier, all []right, owner string) ([]right, error) {
	var lacking []right
	for _, r := range all {
		for verb := range strings.SplitSeq(r.verbs, ", ") {
			has, err := r.has(ctx, conn, verb, owner)
			if err != nil {
				return nil, err
			}
			if !has {
				lacking = append(lacking, r)
				break
			}
		}
	}
	return lacking, nil
}

func (r right) has(ctx context.Context, conn Querier, verb, owner string) (bool, error) {
	var has *bool
	err := conn.QueryRow(ctx, sqlHas[r.kind], r.role, r.object, verb).Scan(&has)
	switch {
	case sqlState(err) == codeInsufficientRight:
		return false, nil // who asks may not look into the schema, and asks for itself
	case err != nil:
		return false, failed("ask for the rights of the role "+r.role, err)
	case has == nil:
		return r.role == owner, nil
	default:
		return *has, nil
	}
}

// grant gives the rights that are missing, and reports those that this role cannot give.
func (m *migrator) grant(ctx context.Context) error {
	lacking, err := missing(ctx, m.conn, rights(m.o.Schema, m.report.App, m.o.Producers), m.report.Owner)
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
	lacking, err = missing(ctx, m.conn, identityRights(m.report.App), "")
	if err != nil {
		return err
	}
	return m.grantOrReport(ctx, lacking, m.o.Bootstrap, !m.o.Unguarded)
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
	needed, err := jobsNeeded()
	if err != nil {
		return err
	}
	if state.version < needed {
		m.report.Missing = append(m.report.Missing, Need{Do: state.advice(m.o.JobsSchema), Stops: true})
	}
	if state.version < lineColumn {
		return nil // its tables are not there, or of another age
	}
	lacking, err := missing(ctx, m.conn, jobsRights(m.o.JobsSchema, m.report.App), "")
	if err != nil {
		return err
	}
	return m.grantOrReport(ctx, lacking, m.o.JobsMigrate || m.o.Bootstrap, true)
}

// grantOrReport tries to grant as the connecting role, and reports what was not possible: the owner of
// these objects is somebody else. stops says whether the engine cannot start without them.
func (m *migrator) grantOrReport(ctx context.Context, lacking []right, try, stops bool) error {
	for _, r := range lacking {
		if !try {
			m.report.Missing = append(m.report.Missing, r.need(stops))
			continue
		}
		err := retried(ctx, func() error { _, err := m.conn.Exec(ctx, r.sql()); return err })
		switch {
		case sqlState(err) == codeInsufficientRight:
			m.report.Missing = append(m.report.Missing, r.need(stops))
			continue
		case err != nil:
			return failed("grant a right", err)
		}
		// A role without the right to grant gets a warning, not an error.
		still, err := missing(ctx, m.conn, []right{r}, "")
		if err != nil {
			return err
		}
		if len(still) > 0 {
			m.report.Missing = append(m.report.Missing, r.need(stops))
			continue
		}
		m.report.Grants = append(m.report.Grants, r.sql())
	}
	return nil
}
