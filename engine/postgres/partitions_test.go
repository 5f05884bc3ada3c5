// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

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

// A transaction that does not fit fails whole, says what to do, and leaves no hole.
func TestAppendWithoutPartition(t *testing.T) {
	t.Parallel()
	db, o := small(t, 1)
	db.Append(t, 18)
	conn := enginetest.Connect(t, db.ProducerURL)
	_, err := conn.Exec(t.Context(), `SELECT bothy.append_events('[{"type": "a"}, {"type": "b"}, {"type": "c"}]')`)
	wantCode(t, err, postgres.CodeNoPartition, `no partition for number 21`)
	wantCode(t, err, postgres.CodeNoPartition, `engine migrate up`)
	if head := db.Head(t); head != 18 {
		t.Errorf("head: got %d, want 18", head)
	}
	must(t, conn, `SELECT bothy.append_events('[{"type": "a"}, {"type": "b"}]')`)
	if report := migrate(t, o); report.Partitions != 2 {
		t.Errorf("partitions made: got %d, want 2", report.Partitions)
	}
	must(t, conn, `SELECT bothy.append_events('[{"type": "a"}]')`)
	if head := db.Head(t); head != 21 {
		t.Errorf("head: got %d, want 21", head)
	}
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
