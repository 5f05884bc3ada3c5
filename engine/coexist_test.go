// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// The names that a cursor can have are the declared ones, in the database as in the file.
func TestConsumerNames(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.Empty())
	cfg := configureWith(t, db.AdminURL, "consumer: {poll_interval: 1h}", entry{name: "push"}, entry{name: "webhooks"})
	options := postgres.MigrateOptions{AdminURL: db.AdminURL, Schema: "bothy", ConsumerNames: cfg.Names()}
	if _, err := postgres.Migrate(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	status, err := postgres.MigrationStatus(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, n := range status.Names {
		if n.Known {
			known = append(known, n.Name)
		}
	}
	slices.Sort(known)
	if diff := cmp.Diff([]string{"push", "webhooks"}, known); diff != "" {
		t.Errorf("names of the CHECK (-declared +got):\n%s", diff)
	}
	for name, state := range map[string]string{"push": "", "webhooks": "", "mailer": "23514", "Push": "23514", "": "23514"} {
		_, err := admin(t, db).Exec(t.Context(), `INSERT INTO bothy.event_consumer_cursors (name) VALUES ($1)`, name)
		var answer *pgconn.PgError
		if got := errors.As(err, &answer); got != (state != "") || (got && answer.Code != state) {
			t.Errorf("cursor %q: %v, want SQLSTATE %q", name, err, state)
		}
	}
}

type theirArgs struct {
	What string `json:"what"`
}

func (theirArgs) Kind() string { return "theirs.periodic" }

type theirWorker struct {
	river.WorkerDefaults[theirArgs]
	worked *atomic.Int64
}

func (w *theirWorker) Work(context.Context, *river.Job[theirArgs]) error {
	w.worked.Add(1)
	return nil
}

// jobs.schema belongs to the user: their River client leads there, its periodic jobs fire, and a job of a
// kind that the engine does not know is left alone, however stuck it looks.
func TestRiverOfTheUserIsLeftAlone(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	e, db := prepared(t, push)
	runInBackground(t, e)
	db.Exec(t, `INSERT INTO public.river_job (kind, args, max_attempts, state, attempt, attempted_at, attempted_by)
VALUES ('theirs.unknown', '{}', 1, 'running', 1, now() - interval '3 days', ARRAY['theirs'])`)
	stuck := func() (state string) {
		if err := admin(t, db).QueryRow(t.Context(), `SELECT state FROM public.river_job WHERE kind = 'theirs.unknown'`).Scan(&state); err != nil {
			t.Fatal(err)
		}
		return state
	}
	db.Append(t, 1)
	waitUntil(t, "the engine processes an event", func() bool { return cursorOf(t, db, "push") == 1 })
	var leaders int
	if err := admin(t, db).QueryRow(t.Context(), `SELECT count(*) FROM public.river_leader`).Scan(&leaders); err != nil || leaders != 0 {
		t.Errorf("%d leaders (%v) while only the engine runs, want none", leaders, err)
	}

	var worked atomic.Int64
	workers := river.NewWorkers()
	river.AddWorker(workers, &theirWorker{worked: &worked})
	theirs, err := river.NewClient(riverpgxv5.New(db.Admin(t)), &river.Config{
		Queues: map[string]river.QueueConfig{"theirs": {MaxWorkers: 2}}, Workers: workers, Logger: slog.New(slog.DiscardHandler),
		PeriodicJobs: []*river.PeriodicJob{river.NewPeriodicJob(river.PeriodicInterval(time.Second), func() (river.JobArgs, *river.InsertOpts) {
			return theirArgs{}, &river.InsertOpts{Queue: "theirs"}
		}, &river.PeriodicJobOpts{RunOnStart: true})},
		// longer than the job looks stuck: what happens to it would be the engine's doing
		RescueStuckJobsAfter: 30 * 24 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := theirs.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "their periodic job fires twice", func() bool { return worked.Load() >= 2 })
	db.Append(t, 1)
	waitUntil(t, "the engine goes on beside it", func() bool { return cursorOf(t, db, "push") == 2 })
	if err := theirs.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("stop their client: %v", err)
	}
	if state := stuck(); state != "running" {
		t.Errorf("their stuck job is %s, want it left running", state)
	}
	rows, err := admin(t, db).Query(t.Context(), `SELECT DISTINCT state::text FROM public.river_job WHERE kind = 'test.push'`)
	if err != nil {
		t.Fatal(err)
	}
	if states, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || !slices.Equal(states, []string{"available"}) {
		t.Errorf("the engine's jobs are %v (%v), want all available: it works none", states, err)
	}
}
