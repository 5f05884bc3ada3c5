// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// small is a database whose log has partitions of ten numbers.
func small(t *testing.T, ahead int) (*enginetest.DB, postgres.MigrateOptions) {
	t.Helper()
	db := enginetest.New(t, enginetest.Empty())
	o := options(db)
	o.PartitionSize, o.PartitionsAhead = 10, ahead
	migrate(t, o)
	return db, o
}

func bounds(t *testing.T, db *enginetest.DB) [][2]int64 {
	t.Helper()
	rows, err := db.Owner(t).Query(t.Context(), `SELECT first, after FROM bothy.event_log_partitions()`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b [2]int64, err error) { return b, row.Scan(&b[0], &b[1]) })
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Case 42: partitions are made by number, as many as the head needs.
func TestMakePartitions(t *testing.T) {
	t.Parallel()
	db, _ := small(t, 2)
	app := db.App(t)
	if diff := cmp.Diff([][2]int64{{1, 11}, {11, 21}, {21, 31}}, bounds(t, db)); diff != "" {
		t.Errorf("after the first run (-want +got):\n%s", diff)
	}
	steps := []struct {
		size  int64
		ahead int
		add   int
		want  int
	}{
		{10, 2, 0, 0},
		{10, 2, 9, 0},
		{10, 2, 1, 1},
		/* the next number, 11, is in the second */ {5, 2, 0, 0},
		{5, 3, 0, 1},
		/* 41 to 46: of another size */ {1000, 3, 30, 3},
	}
	for i, step := range steps {
		if step.add > 0 {
			db.Append(t, step.add)
		}
		made, err := postgres.MakePartitions(t.Context(), app, "bothy", step.size, step.ahead)
		if err != nil || made != step.want {
			t.Errorf("step %d (%+v): got %d, %v; partitions %v", i, step, made, err, bounds(t, db))
		}
	}
	want := [][2]int64{{1, 11}, {11, 21}, {21, 31}, {31, 41}, {41, 46}, {46, 1046}, {1046, 2046}, {2046, 3046}}
	if diff := cmp.Diff(want, bounds(t, db)); diff != "" {
		t.Errorf("at the end (-want +got):\n%s", diff)
	}
	for _, arguments := range []string{"0, 1", "NULL, 1", "10, -1", "10, 1001", "10, NULL"} {
		_, err := app.Exec(t.Context(), `SELECT bothy.make_partitions(`+arguments+`)`)
		wantCode(t, err, "22023", "make_partitions")
	}
}

// Case 42: a log whose partitions are full makes one for the append that needs it, of the size that was
// configured; one transaction may need several.
func TestAppendMakesTheMissingPartition(t *testing.T) {
	t.Parallel()
	db, o := small(t, 1)
	db.Append(t, 18)
	db.Append(t, 3)
	if diff := cmp.Diff([][2]int64{{1, 11}, {11, 21}, {21, 31}}, bounds(t, db)); diff != "" {
		t.Errorf("after the append that found none (-want +got):\n%s", diff)
	}
	db.Append(t, 25) // 22 to 46
	if diff := cmp.Diff([][2]int64{{1, 11}, {11, 21}, {21, 31}, {31, 41}, {41, 51}}, bounds(t, db)); diff != "" {
		t.Errorf("after a transaction over three partitions (-want +got):\n%s", diff)
	}
	if report := migrate(t, o); report.Partitions != 1 {
		t.Errorf("partitions made ahead: got %d, want 1", report.Partitions)
	}
	db.Append(t, 20_000)
	if n := len(bounds(t, db)); n > 60 {
		t.Errorf("one transaction of 20000 events left %d partitions, want at most 60", n)
	}
	if n := len(types(t, db)); n != 20_046 {
		t.Errorf("%d events, want 20046", n)
	}
	db.Append(t, 1) // the bound is written by the first append that finds it
	var bound int64
	if err := db.Admin(t).QueryRow(t.Context(), `SELECT upper_bound FROM bothy.event_seq`).Scan(&bound); err != nil {
		t.Fatal(err)
	}
	if all := bounds(t, db); bound != all[len(all)-1][1] {
		t.Errorf("upper_bound is %d, want %d", bound, all[len(all)-1][1])
	}
}

// A transaction for which no partition can be made fails whole, says what to do, and leaves no hole.
func TestAppendWithoutPartition(t *testing.T) {
	t.Parallel()
	db, o := small(t, 1)
	db.Append(t, 18)
	holder := begin(t, enginetest.Connect(t, db.OwnerURL), pgx.TxOptions{})
	must(t, holder, `LOCK TABLE bothy.event_log IN SHARE UPDATE EXCLUSIVE MODE`)
	conn := enginetest.Connect(t, db.ProducerURL)
	_, err := conn.Exec(t.Context(), `SELECT bothy.append_events('[{"type": "a"}, {"type": "b"}, {"type": "c"}]')`)
	wantCode(t, err, postgres.CodeNoPartition, `no partition for number 21`)
	wantCode(t, err, postgres.CodeNoPartition, `engine migrate up`)
	var answer *pgconn.PgError
	if errors.As(err, &answer) && !strings.Contains(answer.Detail, "another session keeps the lock") {
		t.Errorf("detail %q, want why none could be made", answer.Detail)
	}
	if head := db.Head(t); head != 18 {
		t.Errorf("head: got %d, want 18", head)
	}
	must(t, conn, `SELECT bothy.append_events('[{"type": "a"}, {"type": "b"}]')`) // these have room
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if report := migrate(t, o); report.Partitions != 2 {
		t.Errorf("partitions made: got %d, want 2", report.Partitions)
	}
	must(t, conn, `SELECT bothy.append_events('[{"type": "a"}]')`)
	if head := db.Head(t); head != 21 {
		t.Errorf("head: got %d, want 21", head)
	}
}

// A run that makes partitions never waits for long for a producer that is numbering, and one that is numbering
// needs no bound to be written.
func TestMakePartitionsWhileAProducerNumbers(t *testing.T) {
	t.Parallel()
	db, _ := small(t, 1)
	conn := enginetest.Connect(t, db.ProducerURL)
	numbering := begin(t, conn, pgx.TxOptions{})
	must(t, numbering, appendOne, "a")
	must(t, numbering, `SET CONSTRAINTS ALL IMMEDIATE`) // it holds the counter row until it commits
	start := time.Now()
	if made, err := postgres.MakePartitions(t.Context(), db.App(t), "bothy", 10, 3); err != nil || made != 2 {
		t.Errorf("make partitions: got %d, %v, want 2", made, err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it waited %v for the producer", took)
	}
	if err := numbering.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Append(t, 39) // through what was made without its bound being written
	if diff := cmp.Diff([][2]int64{{1, 11}, {11, 21}, {21, 31}, {31, 41}}, bounds(t, db)); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
}

// A transaction that cannot see the partitions of another one is told to try again, not that it broke.
func TestAppendInAnOldSnapshotWithoutPartition(t *testing.T) {
	t.Parallel()
	db, _ := small(t, 1)
	db.Append(t, 20)
	old := begin(t, enginetest.Connect(t, db.ProducerURL), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, old, appendOne, "a")
	if _, err := db.App(t).Exec(t.Context(), `SELECT bothy.make_partitions(10, 1)`); err != nil {
		t.Fatal(err)
	}
	wantCode(t, old.Commit(t.Context()), "40001", "Retry the whole transaction")
	db.Append(t, 1)
	wantTypes(t, db, slices.Repeat([]string{"order.created"}, 21)...)
}

// Many producers cross one boundary after the other while partitions are made ahead, too few of them: nobody
// fails, nothing deadlocks, no number is missing, and no session misses a partition that came while it looked.
func TestAppendsAcrossPartitionsAtOnce(t *testing.T) {
	t.Parallel()
	db, _ := small(t, 1)
	const producers, each = 6, 100
	var group errgroup.Group
	done := make(chan struct{})
	making := make(chan error, 1)
	app := db.App(t)
	go func() {
		for {
			select {
			case <-done:
				making <- nil
				return
			default:
			}
			if _, err := postgres.MakePartitions(context.WithoutCancel(t.Context()), app, "bothy", 10, 1); err != nil {
				making <- err
				return
			}
		}
	}()
	for range producers {
		conn := enginetest.Connect(t, db.ProducerURL)
		group.Go(func() error {
			for range each {
				if _, err := conn.Exec(t.Context(), appendOne, "a"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Errorf("append: %v", err)
	}
	close(done)
	if err := <-making; err != nil {
		t.Errorf("make partitions: %v", err)
	}
	wantTypes(t, db, slices.Repeat([]string{"a"}, producers*each)...)
}

// A session may have missed the partition that was attached while it read the list of them. So appends trust a new
// partition only after everybody who was there when it came is gone, and has had news of it since.
func TestPartitionsSettleBehindOldTransactions(t *testing.T) {
	t.Parallel()
	db, _ := small(t, 2)
	app := db.App(t)
	settled := func() (reached bool) {
		t.Helper()
		if err := db.Admin(t).QueryRow(t.Context(), `SELECT settled = upper_bound FROM bothy.event_seq`).Scan(&reached); err != nil {
			t.Fatal(err)
		}
		return reached
	}
	run := func() {
		t.Helper()
		if _, err := postgres.MakePartitions(t.Context(), app, "bothy", 10, 2); err != nil {
			t.Fatal(err)
		}
	}
	settle := func() {
		t.Helper()
		// Other tests on this server have transactions too.
		waitFor(t, db, `SELECT bothy.make_partitions(10, 2) >= 0 AND (SELECT settled = upper_bound FROM bothy.event_seq)`)
	}
	settle()
	old := begin(t, enginetest.Connect(t, db.ProducerURL), pgx.TxOptions{})
	must(t, old, appendOne, "a")
	db.Append(t, 12)
	for range 10 {
		run()
	}
	if settled() {
		t.Error("partitions are settled while a transaction is open that is older than they are")
	}
	if err := old.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	settle()
	db.Append(t, 39)
	db.Append(t, 1) // finds the partitions that the one before made
	if settled() {
		t.Error("partitions that an append made are settled at once")
	}
	settle()
	wantTypes(t, db, append(append(slices.Repeat([]string{"order.created"}, 12), "a"), slices.Repeat([]string{"order.created"}, 40)...)...)
}

func TestMakePartitionsFarBehind(t *testing.T) {
	t.Parallel()
	db, _ := small(t, 1)
	db.Exec(t, `UPDATE bothy.event_seq SET seq = 1000000007`)
	made, err := postgres.MakePartitions(t.Context(), db.App(t), "bothy", 10, 1)
	if err != nil || made != 2 {
		t.Errorf("make partitions: got %d, %v, want 2", made, err)
	}
	if diff := cmp.Diff([][2]int64{{1, 11}, {11, 21}, {1000000001, 1000000011}, {1000000011, 1000000021}}, bounds(t, db)); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
}

// Several processes make partitions at once, while producers append and a reader holds the table.
func TestMakePartitionsAtOnce(t *testing.T) {
	t.Parallel()
	db, _ := small(t, 1)
	reader := begin(t, enginetest.Connect(t, db.AppURL), pgx.TxOptions{})
	must(t, reader, `SELECT count(*) FROM bothy.event_log`)
	producer := begin(t, enginetest.Connect(t, db.ProducerURL), pgx.TxOptions{})
	must(t, producer, appendOne, "a")
	app := db.App(t)
	type outcome struct {
		made int
		err  error
	}
	outcomes := make(chan outcome, 4)
	for range 4 {
		go func() {
			made, err := postgres.MakePartitions(context.WithoutCancel(t.Context()), app, "bothy", 10, 5)
			outcomes <- outcome{made, err}
		}()
	}
	total := 0
	for range 4 {
		got := <-outcomes
		if got.err != nil {
			t.Errorf("make partitions: %v", got.err)
		}
		total += got.made
	}
	if total != 4 {
		t.Errorf("partitions made by all: got %d, want 4", total)
	}
	if err := producer.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if err := reader.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}
