// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"os/exec"
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

// runScript runs a script as an administrator does. A machine with a fetched PostgreSQL has no psql; there
// the statements are sent one by one.
func runScript(t *testing.T, db *enginetest.DB, script string) {
	t.Helper()
	psql, err := exec.LookPath("psql")
	if err != nil {
		conn := enginetest.Connect(t, db.AdminURL)
		for _, sql := range statements(script) {
			if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
		return
	}
	command := exec.CommandContext(t.Context(), psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", db.AdminURL, "-f", "-")
	command.Stdin = strings.NewReader(script)
	var complaints strings.Builder
	command.Stderr = &complaints
	if err := command.Run(); err != nil || complaints.Len() > 0 {
		t.Fatalf("psql: %v\n%s", err, complaints.String())
	}
}

// token is what may hold a semicolon that ends no statement, or the one that does.
var token = regexp.MustCompile("(?s)--[^\n]*|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|;")

// dollar opens and closes a quoted body.
var dollar = regexp.MustCompile(`\$[a-z_]*\$`)

// statements splits a script at the semicolons outside of comments, texts and bodies.
func statements(script string) (list []string) {
	start, at := 0, 0
	for at < len(script) {
		next, body := token.FindStringIndex(script[at:]), dollar.FindStringIndex(script[at:])
		if next == nil && body == nil {
			break
		}
		if body != nil && (next == nil || body[0] < next[0]) {
			tag := script[at+body[0] : at+body[1]]
			at += body[1]
			end := strings.Index(script[at:], tag)
			at += end + len(tag)
			continue
		}
		at += next[1]
		if script[at-1] == ';' && next[1]-next[0] == 1 {
			list = append(list, script[start:at])
			start = at
		}
	}
	return list
}

// The two ways to run the script are one: what psql makes, statements make too.
func TestMigrateSQLWithoutPsql(t *testing.T) {
	db := enginetest.New(t, enginetest.Empty())
	o := options(db)
	script, err := postgres.MigrateSQL(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "")
	runScript(t, db, script)
	if report := migrate(t, o); report.Changed() || len(report.Missing) > 0 {
		t.Errorf("Migrate after the script: got %+v, want no change", report)
	}
}

func TestMigrateSQL(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.Empty())
	o := options(db)
	script, err := postgres.MigrateSQL(o)
	if err != nil {
		t.Fatalf("MigrateSQL: %v", err)
	}
	run := func() {
		t.Helper()
		runScript(t, db, script)
	}
	run()
	before := dump(t, db)
	run() // again: nothing to do
	if diff := cmp.Diff(before, dump(t, db)); diff != "" {
		t.Errorf("the second run of the script changed the database (-before +after):\n%s", diff)
	}
	if report := migrate(t, o); report.Changed() || len(report.Missing) > 0 {
		t.Errorf("Migrate after the script: got %+v, want no change", report)
	}
	other := enginetest.New(t, enginetest.Empty())
	o.AdminURL = other.AdminURL
	migrate(t, o)
	if diff := cmp.Diff(dump(t, other), before); diff != "" {
		t.Errorf("the script and Migrate make different databases (-Migrate +script):\n%s", diff)
	}
	// A later script with other names keeps those that are there.
	o.AdminURL, o.ConsumerNames = db.AdminURL, []string{"o'clock"}
	if script, err = postgres.MigrateSQL(o); err != nil {
		t.Fatal(err)
	}
	run()
	status, err := postgres.MigrationStatus(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := []postgres.NameState{{Name: "o'clock", Declared: true, Known: true}, {Name: "push", Known: true}, {Name: "webhooks", Known: true}}
	if diff := cmp.Diff(want, status.Names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
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

// Case 53: another River in the search path is not taken for the one in jobs.schema.
func TestJobsInAnotherSchema(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	err := postgres.CheckSchema(t.Context(), db.App(t), "bothy", "Jobs_2")
	if err == nil || !strings.Contains(err.Error(), `"Jobs_2"`) {
		t.Fatalf("CheckSchema with River in public only: got %v, want an error about Jobs_2", err)
	}
	o := options(db)
	o.JobsSchema = "Jobs_2"
	migrate(t, o)
	if err := postgres.CheckSchema(t.Context(), db.App(t), "bothy", "Jobs_2"); err != nil {
		t.Errorf("CheckSchema: %v", err)
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

func TestCheckSchemaSaysWhatToDo(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ change, want string }{
		"another binary was needed": {
			`INSERT INTO bothy.schema_migration (version, name, oldest_binary) VALUES (9000, 'later', 8000)`,
			`this engine is too old.*needs one that carries migration 8000`,
		},
		"a migration is missing": {`DELETE FROM bothy.schema_migration WHERE version = 3`, `lacks the migration 0003_append.sql: run .engine migrate up`},
		"no schema":              {`DROP SCHEMA bothy CASCADE`, `no schema "bothy".*run .engine migrate up`},
		"River is older":         {`DELETE FROM river_migration WHERE version > 6`, `has version 6 of River's tables and version \d+ is needed`},
		"no River":               {`DROP TABLE river_migration`, `has no tables of River`},
		"counter behind the log (case 77)": {
			`SELECT bothy.append_event('a', NULL, NULL, NULL, NULL); UPDATE bothy.event_seq SET seq = 0`, `holds number 1 and its counter stands at 0`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := enginetest.New(t)
			for statement := range strings.SplitSeq(test.change, "; ") {
				db.Exec(t, statement)
			}
			err := postgres.CheckSchema(t.Context(), db.App(t), "bothy", "public")
			if err == nil || !regexp.MustCompile(test.want).MatchString(err.Error()) {
				t.Errorf("CheckSchema: got %v, want %s", err, test.want)
			}
		})
	}
	t.Run("compatible newer schema", func(t *testing.T) {
		t.Parallel()
		db := enginetest.New(t)
		db.Exec(t, `INSERT INTO bothy.schema_migration (version, name, oldest_binary) VALUES (9000, 'later', 1)`)
		if err := postgres.CheckSchema(t.Context(), db.App(t), "bothy", "public"); err != nil {
			t.Errorf("CheckSchema: got %v, want none", err)
		}
		o := options(db)
		if _, err := postgres.Migrate(t.Context(), o); err != nil {
			t.Errorf("Migrate by an older, compatible binary: %v", err)
		}
	})
	t.Run("old binary migrates", func(t *testing.T) {
		t.Parallel()
		db := enginetest.New(t)
		db.Exec(t, `INSERT INTO bothy.schema_migration (version, name, oldest_binary) VALUES (9000, 'later', 8000)`)
		_, err := postgres.Migrate(t.Context(), options(db))
		if _, ok := errors.AsType[*postgres.OldBinaryError](err); !ok {
			t.Errorf("Migrate: got %v, want an OldBinaryError", err)
		}
	})
	t.Run("unknown database", func(t *testing.T) {
		t.Parallel()
		db := enginetest.New(t)
		o := options(db)
		o.AdminURL = strings.Replace(db.AdminURL, db.Name, "bothy_no_such", 1)
		_, err := postgres.Migrate(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), "create the database first") {
			t.Errorf("Migrate: got %v, want advice to create the database", err)
		}
	})
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
	want := []postgres.Need{{Do: `GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO "bothy_app"`, Role: "bothy_app"}}
	if diff := cmp.Diff(want, report.Missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	o.AdminURL, o.Owner, o.Bootstrap = db.AdminURL, enginetest.OwnerRole, true
	if report = migrate(t, o); len(report.Missing) != 0 || !report.Instance {
		t.Errorf("with an administrator: got missing %v, instance %t, want none and true", report.Missing, report.Instance)
	}
}
