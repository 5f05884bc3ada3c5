// SPDX-License-Identifier: Apache-2.0

// Command worker is an example of a program of yours: it works the jobs of kind orders.notify that the
// engine inserts for the consumer watch-orders of the shipped consumers.yaml.
//
//	BOTHY_DATABASE_URL=postgres://... go run ./docs/examples/worker
//
// It uses River alone and nothing of the engine. Set BOTHY_SCHEMA and JOBS_SCHEMA when database.schema and
// jobs.schema are not bothy and public. Its role needs the rights that River asks for, SELECT on the event
// log and on instance, and CREATE in its own schema for the table of what it has sent.
//
// An event creates its job exactly once. A job can still run more than once: the worker may die between
// the sending and the note that it was sent. The two checks in Work are what every worker should have.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

func main() {
	// SIGTERM stops gracefully: no new job is fetched, and those that run may finish.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := work(ctx, os.Getenv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		stop()
		os.Exit(1)
	}
}

// NotifyArgs are the arguments of every job that the engine inserts. They hold ids and never content: read
// what is true now from the log, or from your own tables.
type NotifyArgs struct {
	Seq       int64  `json:"seq"`       // the number of the event
	Recipient string `json:"recipient"` // who it is for; empty under the rule none
	Epoch     string `json:"epoch"`     // the history that the number belongs to
}

// Kind is job.kind of the consumer.
func (NotifyArgs) Kind() string { return "orders.notify" }

// NotifyWorker works one job at a time; River runs several of them.
type NotifyWorker struct {
	river.WorkerDefaults[NotifyArgs]
	pool   *pgxpool.Pool
	schema string // database.schema of the engine
	out    io.Writer
}

// Work sends one notification.
func (w *NotifyWorker) Work(ctx context.Context, job *river.Job[NotifyArgs]) error {
	ctx = traced(ctx, job.Metadata) // for whatever it calls: a span begun from here belongs to the producer's trace
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // does nothing after a commit

	// Fencing. A database that is restored to an earlier time gives the same numbers to other events. The
	// epoch changes then, so a job of the old history is told apart, and must not be worked on the new one.
	event, err := w.read(ctx, tx, job.Args)
	switch {
	case errors.Is(err, errRestored):
		return river.JobSnooze(time.Minute) // until somebody has finalized the restore, which cancels what is to be cancelled
	case errors.Is(err, errOtherEpoch):
		return river.JobCancel(err) // no retry can help
	case errors.Is(err, pgx.ErrNoRows):
		return river.JobCancel(errors.New("the event is older than what the log keeps"))
	case err != nil:
		return fmt.Errorf("read event %d: %w", job.Args.Seq, err)
	}

	// Idempotency. Epoch, consumer, seq and recipient name this delivery and never change, however often the
	// job runs. The engine writes the consumer's name into the tags of the job.
	key := fmt.Sprintf("%s/%s/%d/%s", job.Args.Epoch, consumerOf(job.Tags), job.Args.Seq, job.Args.Recipient)
	answer, err := tx.Exec(ctx, `INSERT INTO worker_sent (key) VALUES ($1) ON CONFLICT DO NOTHING`, key)
	if err != nil {
		return fmt.Errorf("note the delivery %s: %w", key, err)
	}
	if answer.RowsAffected() == 1 {
		// Here a program would send. What leaves the database can leave twice, since the commit below can be
		// lost: hand the key over as the idempotency key of the request.
		line := fmt.Sprintf("%s %s -> %s", event.kind, event.resourceID, job.Args.Recipient)
		if span := trace.SpanContextFromContext(ctx); span.IsValid() {
			line += " in trace " + span.TraceID().String()
		}
		if _, err := fmt.Fprintln(w.out, line); err != nil {
			return fmt.Errorf("send %s: %w", key, err)
		}
	}
	// The note and the end of the job commit together.
	if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
		return fmt.Errorf("complete the job: %w", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// traced goes on with the trace that the producer gave the event, if it gave one.
func traced(ctx context.Context, metadata []byte) context.Context {
	var meta struct{ Traceparent string }
	_ = json.Unmarshal(metadata, &meta) // a job without a trace is a job all the same
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": meta.Traceparent})
}

var (
	errOtherEpoch = errors.New("the job belongs to a history that this database has left")
	errRestored   = errors.New("the database was restored, and that is not finalized yet")
)

type event struct{ kind, resourceID string }

// read reads the event and checks the epoch in one statement, so that both come from one moment. A database that was
// restored or copied a moment ago has the epoch of before, and jobs that may have been done since: until its identity
// is that of the server none is worked.
func (w *NotifyWorker) read(ctx context.Context, tx pgx.Tx, args NotifyArgs) (event, error) {
	var e event
	var current, here bool
	err := tx.QueryRow(ctx, fmt.Sprintf(
		`SELECT i.sync_epoch::text = $2, coalesce(i.pg_system_identifier = (SELECT system_identifier FROM pg_control_system())
		   AND i.pg_timeline_id = ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint
		   AND coalesce(i.pg_database_oid = (SELECT oid::bigint FROM pg_database WHERE datname = current_database()), true), true),
		   coalesce(l.type, ''), coalesce(l.resource_id, '')
		 FROM %[1]s.instance i LEFT JOIN %[1]s.event_log l ON l.seq = $1`, pgx.Identifier{w.schema}.Sanitize()),
		args.Seq, args.Epoch).Scan(&current, &here, &e.kind, &e.resourceID)
	switch {
	case err != nil:
		return e, err
	case !here:
		return e, errRestored
	case !current:
		return e, errOtherEpoch
	case e.kind == "":
		return e, pgx.ErrNoRows
	}
	return e, nil
}

// consumerOf is the name of the consumer that created a job.
func consumerOf(tags []string) string {
	if len(tags) == 0 {
		return ""
	}
	return tags[0]
}

// work works jobs until ctx ends.
func work(ctx context.Context, env func(string) string, out io.Writer) error {
	schemaOr := func(name, otherwise string) string {
		if value := env(name); value != "" {
			return value
		}
		return otherwise
	}
	pool, err := pgxpool.New(ctx, env("BOTHY_DATABASE_URL"))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS worker_sent (key text PRIMARY KEY, sent_at timestamptz NOT NULL DEFAULT now())`); err != nil {
		return fmt.Errorf("make the table worker_sent: %w", err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &NotifyWorker{pool: pool, schema: schemaOr("BOTHY_SCHEMA", "bothy"), out: out})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Schema:          schemaOr("JOBS_SCHEMA", "public"),
		Queues:          map[string]river.QueueConfig{"notify": {MaxWorkers: 8}}, // job.queue of the consumer
		Workers:         workers,
		SoftStopTimeout: 10 * time.Second,
		Logger:          slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return fmt.Errorf("make the River client: %w", err)
	}
	if err := client.Start(ctx); err != nil { // ending ctx begins the graceful stop
		return fmt.Errorf("start the River client: %w", err)
	}
	<-client.Stopped()
	return nil
}
