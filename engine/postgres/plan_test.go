// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

func status(t *testing.T, o postgres.MigrateOptions) postgres.Status {
	t.Helper()
	s, err := postgres.MigrationStatus(t.Context(), o)
	if err != nil {
		t.Fatalf("MigrationStatus: %v", err)
	}
	return s
}

// promised is what a plan says that a migration does, in the words of a report.
func promised(s postgres.Status) []string {
	var all []string
	for _, c := range s.Plan() {
		if strings.HasPrefix(c.By, "engine migrate up") {
			all = append(all, c.What)
		}
	}
	return all
}

// done is what a migration did, in the words of a plan.
func done(r postgres.Report, version, needed int) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, role := range r.Roles {
		add("create the role %s", role)
	}
	for _, schema := range r.Schemas {
		add("create the schema %s", schema)
	}
	for _, file := range r.Migrations {
		add("apply migration %s", file)
	}
	if len(r.Jobs) > 0 {
		add("migrate River's tables in schema public from version %d to %d", version, needed)
	}
	if r.Instance {
		add("write the identity of the installation")
	}
	if r.NotifyTurned != "" {
		add("turn notifications %s", r.NotifyTurned)
	}
	switch r.Partitions {
	case 0:
	case 1:
		add("make 1 partition of the event log")
	default:
		add("make %d partitions of the event log", r.Partitions)
	}
	for _, name := range r.Names {
		add("let consumer %s have a cursor", name)
	}
	return append(all, r.Grants...)
}

// There is one truth: what a plan says that a migration does is what it then does, from wherever it starts, and
// afterwards nothing is left to do.
func TestPlanIsWhatMigrateDoes(t *testing.T) {
	t.Parallel()
	empty := func(t *testing.T) *enginetest.DB { t.Helper(); return enginetest.New(t, enginetest.Empty()) }
	migrated := func(sql ...string) func(t *testing.T) *enginetest.DB {
		return func(t *testing.T) *enginetest.DB {
			t.Helper()
			db := enginetest.New(t, enginetest.WithConsumers("push"))
			for _, statement := range sql {
				db.Exec(t, statement)
			}
			return db
		}
	}
	off := false
	for name, tt := range map[string]struct {
		from   func(t *testing.T) *enginetest.DB
		change func(o *postgres.MigrateOptions)
	}{
		"nothing there":     {empty, func(*postgres.MigrateOptions) {}},
		"one role for all":  {empty, func(o *postgres.MigrateOptions) { o.Owner, o.App, o.Producers = "", "", nil }},
		"without River":     {empty, func(o *postgres.MigrateOptions) { o.JobsSchema = "" }},
		"without producers": {empty, func(o *postgres.MigrateOptions) { o.Producers = nil }},
		"new consumers":     {migrated(), func(*postgres.MigrateOptions) {}},
		"all there":         {migrated(), func(o *postgres.MigrateOptions) { o.ConsumerNames = []string{"push"}; o.PartitionsAhead = 1 }},
		"a right is gone":   {migrated(`REVOKE ALL ON bothy.event_log FROM bothy_app`), func(*postgres.MigrateOptions) {}},
		"a schema's right":  {migrated(`REVOKE USAGE ON SCHEMA bothy FROM bothy_producer`), func(*postgres.MigrateOptions) {}},
		"River's right":     {migrated(`REVOKE INSERT ON river_job FROM bothy_app`), func(*postgres.MigrateOptions) {}},
		"River is gone":     {migrated(`DROP SCHEMA public CASCADE`, `CREATE SCHEMA public`), func(*postgres.MigrateOptions) {}},
		"the log has grown": {migrated(`UPDATE bothy.event_seq SET seq = 2500000`), func(*postgres.MigrateOptions) {}},
		"past every room":   {migrated(`UPDATE bothy.event_seq SET seq = 7654321`), func(o *postgres.MigrateOptions) { o.PartitionsAhead = 7 }},
		"identity is gone":  {migrated(`DELETE FROM bothy.instance`), func(*postgres.MigrateOptions) {}},
		"notify off":        {migrated(), func(o *postgres.MigrateOptions) { o.Notify = &off }},
		"constraint gone":   {migrated(`ALTER TABLE bothy.event_consumer_cursors DROP CONSTRAINT event_consumer_cursors_name_check`), func(*postgres.MigrateOptions) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(tt.from(t))
			tt.change(&o)
			before := status(t, o)
			report := migrate(t, o)
			if diff := cmp.Diff(promised(before), done(report, before.JobsVersion, before.JobsNeeded)); diff != "" {
				t.Errorf("what was done is not what was planned (-planned +done):\n%s", diff)
			}
			if before.Current() != !report.Changed() {
				t.Errorf("Current said %t and the migration changed something: %t", before.Current(), report.Changed())
			}
			after := status(t, o)
			if left := promised(after); len(left) > 0 || !after.Current() {
				t.Errorf("after the migration: still planned %q, current %t", left, after.Current())
			}
		})
	}
}

// What no migration does: what a start does, and what waits for a person.
func TestPlanBeyondMigrate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sql    string
		change func(o *postgres.MigrateOptions)
		want   []string // kind, by, whether it blocks, and a part of the text
	}{
		"new consumers": {
			`UPDATE bothy.event_seq SET seq = 41`, func(*postgres.MigrateOptions) {},
			[]string{"cursor|engine run|false|consumer push at the head, which is 41 now", "cursor|engine run|false|consumer webhooks"},
		},
		"removed": {
			`INSERT INTO bothy.event_consumer_cursors VALUES ('push', 3), ('webhooks', 4)`, func(o *postgres.MigrateOptions) { o.ConsumerNames = []string{"push"} },
			[]string{"orphan|engine consumers retire|false|webhooks is not declared and has a cursor at 4, 0 events behind"},
		},
		"renamed": {
			`INSERT INTO bothy.event_consumer_cursors VALUES ('push', 3), ('webhooks', 4)`, func(o *postgres.MigrateOptions) { o.ConsumerNames = []string{"push", "hooks"} },
			[]string{"names|engine migrate up --new-consumers|false|hooks", "cursor|engine run|false|hooks", "orphan|engine consumers rename|true|`engine consumers rename webhooks hooks`"},
		},
		"who is who": {
			`INSERT INTO bothy.event_consumer_cursors VALUES ('push', 3), ('webhooks', 4)`, func(o *postgres.MigrateOptions) { o.ConsumerNames = []string{"a"} },
			[]string{"names|engine migrate up --new-consumers|false|a", "cursor|engine run|false|a", "orphan|engine consumers rename|true|consumers (a)", "orphan|engine consumers rename|true|consumers (a)"},
		},
		"environment": {
			`INSERT INTO bothy.event_consumer_cursors VALUES ('push', 3), ('webhooks', 4)`, func(o *postgres.MigrateOptions) { o.Environment = "production" },
			[]string{`environment|engine migrate up --new-environment|true|says environment "test" and the configuration "production"`},
		},
		"restored": {
			`INSERT INTO bothy.event_consumer_cursors VALUES ('push', 3), ('webhooks', 4); UPDATE bothy.instance SET pg_system_identifier = 7`, func(*postgres.MigrateOptions) {},
			[]string{`identity|engine restore finalize|true|is not the one`},
		},
		"River is somebody else's": {
			`INSERT INTO bothy.event_consumer_cursors VALUES ('push', 3), ('webhooks', 4); DELETE FROM river_migration WHERE version > 6`,
			func(o *postgres.MigrateOptions) { o.JobsMigrate = false },
			[]string{"jobs|you|true|run `river migrate-up --schema public`"},
		},
		"outgrown": {
			`INSERT INTO bothy.event_consumer_cursors VALUES ('push', 3), ('webhooks', 4); INSERT INTO bothy.schema_migration VALUES (9000, 'later', 8000)`, func(*postgres.MigrateOptions) {},
			[]string{"server|you|true|too old"},
		},
		"no counter": {
			`INSERT INTO bothy.event_consumer_cursors VALUES ('push', 3), ('webhooks', 4); DELETE FROM bothy.event_seq`, func(*postgres.MigrateOptions) {},
			[]string{`server|you|true|event_seq is empty`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := enginetest.New(t, enginetest.WithConsumers("push", "webhooks"))
			if _, err := enginetest.Connect(t, db.AdminURL).Exec(t.Context(), tt.sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
			o := options(db)
			o.PartitionsAhead = 1
			tt.change(&o)
			plan := status(t, o).Plan()
			if len(plan) != len(tt.want) {
				t.Fatalf("got %d changes, want %d:\n%+v", len(plan), len(tt.want), plan)
			}
			for i, want := range tt.want {
				c := plan[i]
				parts := strings.SplitN(want, "|", 4)
				if got := fmt.Sprintf("%s|%s|%t", c.Kind, c.By, c.Blocks); got != strings.Join(parts[:3], "|") || !strings.Contains(c.What, parts[3]) {
					t.Errorf("change %d: got %s|%s, want %s", i, got, c.What, want)
				}
			}
		})
	}
}
