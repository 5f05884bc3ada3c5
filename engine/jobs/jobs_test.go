// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/jobs"
	"example.com/bothy/engine/round"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

const (
	epoch = "0190a000-0000-7000-8000-000000000001"
	trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

var push = round.Consumer{Name: "push-mail", Job: round.Job{Kind: "mail.send", Queue: "mail", MaxAttempts: 12, Priority: 3}}

// rivers is the same job as River itself inserts it.
type rivers jobs.Args

func (rivers) Kind() string { return push.Job.Kind }

// insert runs Insert in a transaction of its own.
func insert(t testing.TB, pool *pgxpool.Pool, targets ...round.Target) error {
	t.Helper()
	return insertTraced(t, pool, nil, targets...)
}

// insertTraced is insert, for events with traces.
func insertTraced(t testing.TB, pool *pgxpool.Pool, traces map[int64]string, targets ...round.Target) error {
	t.Helper()
	inserter, err := jobs.NewInserter(t.Context(), pool, enginetest.JobsSchema)
	if err != nil {
		t.Fatal(err)
	}
	defer inserter.Close()
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return inserter.Insert(t.Context(), tx, push, round.Jobs{Epoch: epoch, Targets: targets, Traces: traces})
	})
	if err == nil {
		inserter.Inserted(push.Job.Queue)
	}
	return err
}

// The engine writes River's table itself. Every column must be as if River had written it: a release of
// River that wants something else shows here.
func TestInsertWritesWhatRiverWrites(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	pool := db.Admin(t)
	recipients := []string{"", "alex", `a "quoted" <name>\ & co`, "line\nbreak", "\u00e9\u4e16\U0001f600", strings.Repeat("x", 70_000)}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	targets := make([]round.Target, len(recipients))
	params := make([]river.InsertManyParams, len(recipients))
	for i, r := range recipients {
		targets[i] = round.Target{Seq: 9007199254740993 + int64(i), Recipient: r}
		params[i] = river.InsertManyParams{
			Args:       rivers{Seq: targets[i].Seq, Recipient: r, Epoch: epoch},
			InsertOpts: &river.InsertOpts{Queue: "mail", MaxAttempts: 12, Priority: 3, Tags: []string{"push-mail"}},
		}
	}
	rowsOf := func() (rows []string) {
		result, err := pool.Query(t.Context(), `SELECT (to_jsonb(j) - 'id' - 'created_at' - 'scheduled_at')::text || ' recent ' || (created_at BETWEEN now() - interval '1 hour' AND now() AND scheduled_at <= now())
FROM public.river_job j ORDER BY id`)
		if err != nil {
			t.Fatal(err)
		}
		if rows, err = pgx.CollectRows(result, pgx.RowTo[string]); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `TRUNCATE public.river_job`)
		return rows
	}
	if _, err := client.InsertManyFast(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	want := rowsOf()
	// a few go by INSERT, and with a thousand others they go by COPY
	if err := insert(t, db.App(t), targets...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, rowsOf()); diff != "" {
		t.Errorf("rows of the engine, inserted (-River +engine):\n%s", diff)
	}
	if err := insert(t, db.App(t), append(targets, make([]round.Target, 1000)...)...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, rowsOf()[:len(want)]); diff != "" {
		t.Errorf("rows of the engine, copied (-River +engine):\n%s", diff)
	}
}

// Each job carries the trace of its own event, and a job of an event without one is as River itself would write it.
func TestInsertCarriesTraces(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	for _, others := range []int{0, 1000} { // by INSERT, by COPY
		targets := append([]round.Target{{Seq: 1, Recipient: "alex"}, {Seq: 1, Recipient: "sam"}, {Seq: 2, Recipient: "alex"}, {Seq: 3}}, make([]round.Target, others)...)
		traces := map[int64]string{1: trace, 3: `"}` + strings.Repeat("x", 53)} // the second is none, as long as it is
		if err := insertTraced(t, db.App(t), traces, targets...); err != nil {
			t.Fatal(err)
		}
		rows, err := db.Admin(t).Query(t.Context(), `SELECT concat_ws(' ', args ->> 'seq', args ->> 'recipient', metadata) FROM public.river_job ORDER BY id LIMIT 4`)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		want := []string{`1 alex {"traceparent": "` + trace + `"}`, `1 sam {"traceparent": "` + trace + `"}`, `2 alex {}`, `3  {}`}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("jobs with %d others, %v (-want +got):\n%s", others, err, diff)
		}
		db.Exec(t, `TRUNCATE public.river_job`)
	}
}

func TestInsertNothing(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	if err := insert(t, db.App(t)); err != nil {
		t.Errorf("Insert of no targets: %v", err)
	}
}

// Case 47: a recipient that cannot be stored as it is refuses the whole call, and is never mended.
func TestInsertRefusesRecipients(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	pool := db.App(t)
	for _, recipient := range []string{"a\x00b", "\xff", "ok\xc3"} {
		for _, others := range []int{1, 1000} { // by INSERT, by COPY
			targets := append(make([]round.Target, others), round.Target{Seq: 2, Recipient: recipient})
			err := insert(t, pool, targets...)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("recipient %q of event 2", recipient)) {
				t.Errorf("Insert of %q behind %d others = %v, want an error that names it", recipient, others, err)
			}
		}
	}
	if n := db.Jobs(t, push.Job.Kind); n != 0 {
		t.Errorf("%d jobs after refused calls, want none", n)
	}
}

// A worker is told of new jobs at once: its own poll is an hour away.
func TestInsertWakesWorkers(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	began := make(chan int64, 10)
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[rivers]) error {
		began <- job.Args.Seq
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(db.Admin(t)), &river.Config{
		Queues: map[string]river.QueueConfig{"mail": {MaxWorkers: 1}}, Workers: workers,
		FetchCooldown: time.Millisecond, FetchPollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for seq := range int64(5) {
		if err := insert(t, db.App(t), round.Target{Seq: seq, Recipient: "alex"}); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-began:
			if got != seq {
				t.Errorf("worked the job of event %d, want %d", got, seq)
			}
		case <-limit.C:
			t.Fatalf("the job of event %d did not begin", seq)
		}
	}
	if err := client.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// own is a job that a handler makes itself.
type own struct {
	Note string `json:"note"`
}

func (own) Kind() string { return "own.note" }

func TestInsertOwn(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	pool := db.App(t)
	inserter, err := jobs.NewInserter(t.Context(), pool, enginetest.JobsSchema)
	if err != nil {
		t.Fatal(err)
	}
	defer inserter.Close()
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return inserter.InsertOwn(t.Context(), tx, own{"hello"}, round.Job{Queue: "notes"}, trace)
	})
	if err != nil {
		t.Fatal(err)
	}
	var args, queue, metadata string
	err = db.Admin(t).QueryRow(t.Context(), `SELECT args::text, queue, metadata::text FROM public.river_job WHERE kind = 'own.note'`).Scan(&args, &queue, &metadata)
	if err != nil || args != `{"note": "hello"}` || queue != "notes" || metadata != `{"traceparent": "`+trace+`"}` {
		t.Errorf("job: args %s, queue %s, metadata %s, %v", args, queue, metadata, err)
	}
	if err := inserter.InsertOwn(t.Context(), nil, nil, round.Job{}, ""); err == nil {
		t.Error("InsertOwn without arguments: no error")
	}
}

// FuzzArgs: what is written is JSON that reads back as it was given, or an error.
func FuzzArgs(f *testing.F) {
	f.Add(int64(1), "alex")
	f.Add(int64(-1), "\"\\\x00\u2028\xff")
	f.Fuzz(func(t *testing.T, seq int64, recipient string) {
		b, err := jobs.AppendArgs(nil, round.Target{Seq: seq, Recipient: recipient}, epoch)
		if err != nil {
			return
		}
		var got jobs.Args
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("arguments of %q are not JSON: %s: %v", recipient, b, err)
		}
		if want := (jobs.Args{Seq: seq, Recipient: recipient, Epoch: epoch}); got != want {
			t.Errorf("arguments read back as %+v, want %+v", got, want)
		}
	})
}
