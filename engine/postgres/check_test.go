// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

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
		"no counter":             {`DELETE FROM bothy.event_seq`, `event_seq is empty: its one row is the counter .*: stop the producers and run .engine restore finalize`},
		"no identity":            {`DELETE FROM bothy.instance`, `instance is empty: its one row is the identity .*: bring it back from the backup; or .* run .engine migrate up.*engine restore finalize`},
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

// What a finalize does about an empty counter brings the log back to where it was, also when retention has taken
// every event.
func TestCounterComesBack(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]string{"with events": `SELECT`, "without events": `DELETE FROM bothy.event_log`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := enginetest.New(t, enginetest.WithConsumers("push"))
			db.Append(t, 7)
			db.Exec(t, `INSERT INTO bothy.event_consumer_cursors VALUES ('push', 7)`)
			db.Exec(t, after)
			db.Exec(t, `DELETE FROM bothy.event_seq`)
			o := options(db)
			_, err := postgres.Migrate(t.Context(), o)
			if gone, ok := errors.AsType[*postgres.MissingRowError](err); !ok || !strings.Contains(gone.Fix, "engine restore finalize") {
				t.Fatalf("Migrate without a counter: got %v, want a MissingRowError that names the command", err)
			}
			r, err := postgres.OpenRestore(t.Context(), postgres.RestoreOptions{AdminURL: db.OwnerURL, URL: db.AppURL, Schema: "bothy"})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			err = r.Finalize(t.Context(), func(ctx context.Context, tx *postgres.FinalizeTx) bool {
				state, err := tx.Lock(ctx)
				if err == nil {
					err = tx.SetCounter(ctx, state.Head())
				}
				if err != nil {
					t.Error(err)
				}
				return err == nil
			})
			if head := db.Head(t); err != nil || head != 7 {
				t.Errorf("the head that was made again: got %d, %v, want 7", head, err)
			}
			db.Append(t, 1)
			migrate(t, o)
			if err := postgres.CheckSchema(t.Context(), db.App(t), "bothy", "public"); err != nil {
				t.Errorf("CheckSchema: %v", err)
			}
		})
	}
}

// An identity that is gone is made anew, and said: it is that of no server, so that nothing runs before a finalize.
func TestMigrateMakesTheIdentityAnew(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("push"))
	db.Exec(t, `INSERT INTO bothy.event_consumer_cursors VALUES ('push', 7)`)
	db.Exec(t, `DELETE FROM bothy.instance`)
	report := migrate(t, options(db))
	if !report.Instance || len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "engine restore finalize") {
		t.Errorf("Migrate: got instance %t and notes %q, want a new one and a note", report.Instance, report.Notes)
	}
	store := openStore(t, db.AppURL)
	if r, err := store.Recognize(t.Context()); err != nil || !r.Differs() {
		t.Errorf("got %+v and %v, want another server than this one", r, err)
	}
}

// An installation of before is given the number of its database, when it is on the server that it says.
func TestMigrateStoresTheDatabase(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before string
		stored bool
	}{
		"the same server": {`UPDATE bothy.instance SET pg_database_oid = NULL`, true},
		"another server":  {`UPDATE bothy.instance SET pg_database_oid = NULL, pg_timeline_id = pg_timeline_id + 1`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := enginetest.New(t)
			db.Exec(t, tt.before)
			migrate(t, options(db))
			r, err := openStore(t, db.AppURL).Recognize(t.Context())
			if err != nil || (r.Stored.Database != 0) != tt.stored {
				t.Fatalf("got %+v and %v, want the number stored: %v", r, err, tt.stored)
			}
			if tt.stored && r.Differs() {
				t.Errorf("%+v differs from itself", r)
			}
			db.Exec(t, `UPDATE bothy.instance SET pg_database_oid = 1`)
			if r, err := openStore(t, db.AppURL).Recognize(t.Context()); err != nil || !r.Differs() {
				t.Errorf("another database of the server: got %+v and %v, want that it differs", r, err)
			}
		})
	}
}
