// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

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

// River's tables may be somebody else's; the app needs its rights on them all the same. Where they are not there
// yet, the script says so and does the rest.
func TestMigrateSQLGrantsOnForeignRiver(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	db.Exec(t, `REVOKE ALL ON river_job, river_migration FROM bothy_app`)
	o := options(db)
	o.JobsMigrate, o.PartitionsAhead = false, 1
	script, err := postgres.MigrateSQL(o)
	if err != nil {
		t.Fatal(err)
	}
	runScript(t, db, script)
	if s := status(t, o); len(s.Missing) > 0 {
		t.Errorf("after the script the roles lack %v", s.Missing)
	}

	empty := enginetest.New(t, enginetest.Empty())
	o.AdminURL = empty.AdminURL
	config, err := pgx.ParseConfig(empty.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	var warnings []string
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { warnings = append(warnings, n.Message) }
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, sql := range statements(script) {
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if all := strings.Join(warnings, "\n"); !strings.Contains(all, `there is no table "public".river_job yet`) || !strings.Contains(all, `GRANT SELECT, INSERT ON TABLE "public".river_job TO "bothy_app"`) {
		t.Errorf("warnings of the script: got %q, want one about each table of River", warnings)
	}
	if s := status(t, o); !s.Exists || len(s.Missing) > 0 {
		t.Errorf("after the script without River: exists %t, the roles lack %v", s.Exists, s.Missing)
	}
}
