// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// older is an installation to which the migrations from a number on are still to be applied.
func older(t *testing.T, from string) (*enginetest.DB, postgres.MigrateOptions) {
	t.Helper()
	db := enginetest.New(t, enginetest.Empty())
	o := options(db)
	o.JobsSchema, o.JobsMigrate = "", false
	script, err := postgres.MigrateSQL(o)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(script, "version = "+from+")")
	if !found {
		t.Fatalf("the script applies no migration %s:\n%s", from, script)
	}
	before = before[:strings.LastIndex(before, "DO $bothy_do$")]
	if err := postgres.RunScript(t.Context(), db.AdminURL, before+"SELECT bothy.make_partitions(1000, 2)"); err != nil {
		t.Fatal(err)
	}
	return db, o
}

// A migration that needs a strong lock does not wait for a reader with all producers behind it. It tries again, and
// is applied once the reader has ended.
func TestMigrateLetsProducersPass(t *testing.T) {
	t.Parallel()
	db, o := older(t, "7")
	reader := begin(t, enginetest.Connect(t, db.OwnerURL), pgx.TxOptions{})
	must(t, reader, `SELECT * FROM bothy.event_seq`)
	waits := make(chan string, 100)
	o.Log = func(line string) { waits <- line }
	type outcome struct {
		report postgres.Report
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		report, err := postgres.Migrate(context.WithoutCancel(t.Context()), o)
		done <- outcome{report, err}
	}()
	limit := time.After(20 * time.Second)
	for line := ""; !strings.Contains(line, "another session"); {
		select {
		case line = <-waits:
		case early := <-done:
			t.Fatalf("Migrate ended with a reader in its way: %+v, %v", early.report, early.err)
		case <-limit:
			t.Fatal("nothing says what the migration waits for")
		}
	}
	producer := enginetest.Connect(t, db.OwnerURL)
	must(t, producer, `SET lock_timeout = '2s'`)
	for range 50 {
		must(t, producer, appendOne, "a")
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.err != nil || len(got.report.Migrations) == 0 {
		t.Errorf("Migrate after the reader ended: %+v, %v", got.report, got.err)
	}
	if head := db.Head(t); head != 50 {
		t.Errorf("head %d, want 50", head)
	}
}

// A reader that stays ends the migration with the name of what it could not lock, and nothing half done.
func TestMigrateSQLGivesUpOnALock(t *testing.T) {
	t.Parallel()
	db, o := older(t, "7")
	reader := begin(t, enginetest.Connect(t, db.OwnerURL), pgx.TxOptions{})
	must(t, reader, `SELECT * FROM bothy.event_seq`)
	script, err := postgres.MigrateSQL(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	wantCode(t, postgres.RunScript(ctx, db.AdminURL, script), "55P03", "lock timeout")
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := postgres.RunScript(t.Context(), db.AdminURL, script); err != nil {
		t.Errorf("the script, once the reader has ended: %v", err)
	}
}
