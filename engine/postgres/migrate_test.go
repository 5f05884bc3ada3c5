// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// options are those of a whole installation in an empty database.
func options(db *enginetest.DB) postgres.MigrateOptions {
	return postgres.MigrateOptions{
		AdminURL: db.AdminURL, Schema: "bothy", Owner: enginetest.OwnerRole, App: enginetest.AppRole,
		Producers: []string{enginetest.ProducerRole}, Bootstrap: true, ConsumerNames: []string{"webhooks", "push"},
		PartitionSize: 1000, PartitionsAhead: 2, JobsSchema: "public", JobsMigrate: true,
	}
}

func migrate(t *testing.T, o postgres.MigrateOptions) postgres.Report {
	t.Helper()
	report, err := postgres.Migrate(t.Context(), o)
	if err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	return report
}

func TestMigrateTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.Empty())
	o := options(db)
	first := migrate(t, o)
	if len(first.Migrations) == 0 || len(first.Jobs) == 0 || first.Partitions != 3 || !first.Instance || len(first.Missing) > 0 {
		t.Errorf("first run: got %+v, want migrations, River, 3 partitions, an instance and nothing missing", first)
	}
	if diff := cmp.Diff([]string{"push", "webhooks"}, first.Names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	before := dump(t, db)
	o.Bootstrap, o.ConsumerNames = false, []string{"push"}
	if second := migrate(t, o); second.Changed() || len(second.Missing) > 0 {
		t.Errorf("second run: got %+v, want no change", second)
	}
	if diff := cmp.Diff(before, dump(t, db)); diff != "" {
		t.Errorf("the second run changed the database (-before +after):\n%s", diff)
	}
	if err := postgres.CheckSchema(t.Context(), db.App(t), o.Schema, o.JobsSchema); err != nil {
		t.Errorf("CheckSchema as the app: %v", err)
	}
	status, err := postgres.MigrationStatus(t.Context(), o)
	if err != nil || !status.Current() || status.Partitions != 3 {
		t.Errorf("MigrationStatus: got %+v, %v, want a current one with 3 partitions", status, err)
	}
}

// dump is every relation, function, constraint and right of the database, in order.
func dump(t *testing.T, db *enginetest.DB) []string {
	t.Helper()
	rows, err := db.Admin(t).Query(t.Context(), `
SELECT 'table ' || n.nspname || '.' || c.relname || ' ' || c.relkind::text || ' ' || pg_get_userbyid(c.relowner) || ' '
	|| coalesce((SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(c.relacl) a), '-') || ' ' || coalesce(c.reloptions::text, '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname !~ '^(pg_|information_schema)'
UNION ALL
SELECT 'function ' || p.oid::regprocedure::text || ' ' || pg_get_userbyid(p.proowner) || ' ' || md5(p.prosrc) || ' '
	|| coalesce((SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(p.proacl) a), '-') || ' ' || coalesce(p.proconfig::text, '')
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname !~ '^(pg_|information_schema)'
UNION ALL
SELECT 'constraint ' || k.conrelid::regclass::text || ' ' || k.conname || ' ' || pg_get_constraintdef(k.oid) FROM pg_constraint k WHERE k.conrelid <> 0
UNION ALL
SELECT 'schema ' || nspname || ' ' || pg_get_userbyid(nspowner) || ' ' || coalesce((SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(nspacl) a), '-')
FROM pg_namespace WHERE nspname !~ '^pg_'
ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestMigrateTwoAtOnce(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.Empty())
	o := options(db)
	type outcome struct {
		report postgres.Report
		err    error
	}
	const many = 4
	outcomes := make(chan outcome, many)
	for range many {
		go func() {
			report, err := postgres.Migrate(context.WithoutCancel(t.Context()), o)
			outcomes <- outcome{report, err}
		}()
	}
	changed := 0
	for range many {
		got := <-outcomes
		if got.err != nil {
			t.Errorf("Migrate: %v", got.err)
		}
		if got.report.Changed() {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("runs that changed something: got %d, want 1", changed)
	}
}

func TestMigrateNeedsItsRoles(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.Empty())
	o := options(db)
	o.Bootstrap, o.App = false, "bothy_nobody"
	_, err := postgres.Migrate(t.Context(), o)
	if err == nil || !regexp.MustCompile(`no role "bothy_nobody".*migrate up --bootstrap.*migrate sql`).MatchString(err.Error()) {
		t.Errorf("Migrate with a missing role: got %v, want an error that names the role and both ways out", err)
	}
}

// A team without an administrator: one ordinary role that may create schemas is everything.
func TestMigrateAsOrdinaryRole(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.Empty())
	o := postgres.MigrateOptions{AdminURL: db.AppURL, Schema: "bothy", ConsumerNames: []string{"push"}, JobsSchema: "jobs", JobsMigrate: true}
	_, err := postgres.Migrate(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), `CREATE SCHEMA "bothy" AUTHORIZATION "bothy_app"`) {
		t.Fatalf("Migrate without the right to create: got %v, want an error with the statement to run", err)
	}
	db.Exec(t, `GRANT CREATE ON DATABASE `+db.Name+` TO bothy_app`)
	migrate(t, o)
	if report := migrate(t, o); report.Changed() || len(report.Missing) > 0 {
		t.Errorf("second run: got %+v, want no change", report)
	}
	if _, err := db.App(t).Exec(t.Context(), `SELECT bothy.append_event('a', NULL, NULL, NULL, NULL)`); err != nil {
		t.Errorf("append: %v", err)
	}
}

// River belongs to the user: without leave it is not touched, and what is missing is said.
func TestMigrateLeavesJobsAlone(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.Empty())
	o := options(db)
	o.JobsMigrate = false
	report := migrate(t, o)
	if len(report.Jobs) != 0 || len(report.Missing) != 1 || !strings.Contains(report.Missing[0].Do, "jobs.migrate") || !report.Missing[0].Stops {
		t.Errorf("Migrate: got River %v and missing %v, want nothing of River and advice", report.Jobs, report.Missing)
	}
	err := postgres.CheckSchema(t.Context(), db.App(t), o.Schema, o.JobsSchema)
	if err == nil || !strings.Contains(err.Error(), `"public" (jobs.schema) has no tables of River`) {
		t.Errorf("CheckSchema: got %v, want an error about River's tables", err)
	}
}

func TestMigrateOddSchemaNames(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{`Odd "Schema" 1`, `it's; -- {{schema}}`, `räume :a $1 %s \ E'x`, `select`} {
		t.Run(schema, func(t *testing.T) {
			t.Parallel()
			db := enginetest.New(t, enginetest.Empty())
			o := options(db)
			o.Schema = schema
			migrate(t, o)
			if report := migrate(t, o); report.Changed() {
				t.Errorf("second run: got %+v, want no change", report)
			}
			if err := postgres.CheckSchema(t.Context(), db.App(t), schema, "public"); err != nil {
				t.Errorf("CheckSchema: %v", err)
			}
			in := pgx.Identifier{schema}.Sanitize()
			if _, err := db.Producer(t).Exec(t.Context(), `SELECT `+in+`.append_event('a', NULL, NULL, NULL, NULL)`); err != nil {
				t.Errorf("append: %v", err)
			}
			if _, err := postgres.MakePartitions(t.Context(), db.App(t), schema, 10, 3); err != nil {
				t.Errorf("make partitions: %v", err)
			}
		})
	}
	for _, schema := range []string{"", strings.Repeat("x", 64), "a\x00b", "a\nb", "a$bothy$b"} {
		if _, err := postgres.MigrateSQL(postgres.MigrateOptions{Schema: schema}); err == nil {
			t.Errorf("schema %q: got no error, want one", schema)
		}
	}
}

// Names are only ever added, and a busy table is waited for in short steps.
func TestMigrateAddsNames(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("a", "it's"))
	db.Exec(t, `INSERT INTO bothy.event_consumer_cursors (name) VALUES ('a')`)
	hold, err := db.App(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hold.Exec(t.Context(), `SELECT FROM bothy.event_consumer_cursors FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	// One that nobody needs to add must not even look at the lock.
	if added, err := postgres.AllowNames(t.Context(), db.OwnerURL, "bothy", nil); err != nil || len(added) != 0 {
		t.Errorf("AllowNames of none: got %q, %v", added, err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := postgres.AllowNames(context.WithoutCancel(t.Context()), db.OwnerURL, "bothy", []string{"b"})
		done <- err
	}()
	waitFor(t, db, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	if err := hold.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("AllowNames: %v", err)
	}
	o := options(db)
	o.ConsumerNames = []string{"b"}
	status, err := postgres.MigrationStatus(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := []postgres.NameState{{Name: "a", Known: true, Cursor: true}, {Name: "b", Declared: true, Known: true}, {Name: "it's", Known: true}}
	if diff := cmp.Diff(want, status.Names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// Case 74: a hardened server lets only those read its identity who were granted it.
func TestMigrateIdentityRights(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.Empty())
	db.Exec(t, `REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC`)
	o := options(db)
	o.AdminURL, o.Owner, o.Bootstrap, o.Producers, o.JobsSchema = db.OwnerURL, "", false, nil, ""
	db.Exec(t, `GRANT CREATE ON DATABASE `+db.Name+` TO bothy_owner`)
	report := migrate(t, o)
	want := []postgres.Need{{Do: `GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO "bothy_app"`, Role: "bothy_app", Stops: true}}
	if diff := cmp.Diff(want, report.Missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	o.AdminURL, o.Owner, o.Bootstrap = db.AdminURL, enginetest.OwnerRole, true
	if report = migrate(t, o); len(report.Missing) != 0 || !report.Instance {
		t.Errorf("with an administrator: got missing %v, instance %t, want none and true", report.Missing, report.Instance)
	}
}

// Who turned notifications off in the database keeps them off; only a configuration that says otherwise changes it.
func TestMigrateLeavesNotifyAlone(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	o := options(db)
	for _, step := range []struct {
		sql    string
		notify *bool
		turned string
		want   bool
	}{
		{`SELECT`, nil, "", true},
		{`UPDATE bothy.event_seq SET notify = false`, nil, "", false},
		{`SELECT`, new(true), "on", true},
		{`SELECT`, new(true), "", true},
		{`SELECT`, new(false), "off", false},
		{`SELECT`, nil, "", false},
	} {
		db.Exec(t, step.sql)
		o.Notify = step.notify
		report := migrate(t, o)
		script, err := postgres.MigrateSQL(o)
		if err != nil {
			t.Fatal(err)
		}
		runScript(t, db, script)
		if s := status(t, o); report.NotifyTurned != step.turned || s.Notify != step.want {
			t.Errorf("%+v: got turned %q and notify %t", step, report.NotifyTurned, s.Notify)
		}
	}
}

// A right that the app alone lacks stops the engine, whoever migrates: it is reported, and not as nothing to do.
func TestMigrateReportsWhatOnlyTheAppLacks(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	o := options(db)
	o.Bootstrap, o.JobsMigrate, o.PartitionsAhead, o.ConsumerNames = false, false, 1, nil
	db.Exec(t, `REVOKE INSERT ON river_job FROM bothy_app`)
	report := migrate(t, o)
	want := []postgres.Need{{Do: `GRANT SELECT, INSERT ON TABLE "public".river_job TO "bothy_app"`, Role: "bothy_app", Stops: true}}
	if diff := cmp.Diff(want, report.Stopped()); diff != "" || report.Changed() {
		t.Errorf("what stops the engine (-want +got), changed %t:\n%s", report.Changed(), diff)
	}
	db.Exec(t, `DELETE FROM river_migration WHERE version > 6`)
	if report = migrate(t, o); len(report.Stopped()) != 2 || !strings.Contains(report.Stopped()[0].Do, "version 6 of River's tables") {
		t.Errorf("with an older River: got %+v, want it and the right", report.Stopped())
	}
}

// An installation without an environment gets that of the configuration. Another one stays until somebody says that
// it is meant, and then the audit knows.
func TestMigrateEnvironment(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.Empty())
	o := options(db)
	o.Environment = ""
	migrate(t, o)
	environment := func() (name string) {
		t.Helper()
		if err := db.Admin(t).QueryRow(t.Context(), `SELECT environment FROM bothy.instance`).Scan(&name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, step := range []struct {
		want       string
		on         bool
		stored     string
		changed    bool
		notes      int
		auditedNow int
	}{
		{"", false, "", false, 0, 0},
		{"production", false, "production", true, 0, 0},
		{"production", true, "production", false, 0, 0},
		{"staging", false, "production", false, 1, 0},
		{"", false, "production", false, 0, 0},
		{"staging", true, "staging", true, 0, 1},
	} {
		o.Environment, o.NewEnvironment = step.want, step.on
		report := migrate(t, o)
		if got := environment(); got != step.stored || (report.Environment != "") != step.changed || report.Changed() != step.changed || len(report.Notes) != step.notes {
			t.Errorf("%+v: got %q, changed to %q, notes %q", step, got, report.Environment, report.Notes)
		}
		var n int
		err := db.Admin(t).QueryRow(t.Context(), `SELECT count(*) FROM bothy.audit_events WHERE action = 'instance.environment_changed'
AND details = '{"from": "production", "to": "staging"}' AND subject = (SELECT id::text FROM bothy.instance)`).Scan(&n)
		if err != nil || n != step.auditedNow {
			t.Errorf("%+v: %d rows in the audit, %v", step, n, err)
		}
	}
}
