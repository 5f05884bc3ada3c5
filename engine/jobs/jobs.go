// SPDX-License-Identifier: Apache-2.0

// Package jobs is the engine's side of River: it inserts the jobs that rounds decide, of kinds that are
// known only at run time, and in dev it works them with a recorder.
//
// The schema that jobs go to belongs to the user. The engine only inserts there: it never works a job and
// never leads, since a leader acts on every job of the schema, also on those of other programs.
//
// The arguments of a job are always and only
//
//	{"seq": 42, "recipient": "alex", "epoch": "0190..."}
//
// and its tag is the name of the consumer. Together they are the stable identity of a delivery. The metadata of a job
// hold the traceparent of its event, when the producer gave one, and nothing else.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/round"
)

// Args are the arguments of an engine's job. A worker program can decode its jobs into this type.
type Args struct {
	Seq       int64  `json:"seq"`       // the event's number
	Recipient string `json:"recipient"` // who it is for; empty under the rule none
	Epoch     string `json:"epoch"`     // the history that Seq belongs to, a UUID
}

// Inserter inserts the jobs of rounds. It is safe for use by many goroutines.
type Inserter struct {
	client   *river.Client[pgx.Tx] // for the jobs that handlers make themselves
	schema   string
	notifier *notifier
}

// NewInserter makes an Inserter for the River tables in schema. Jobs are inserted in the transactions that
// Insert is given; the pool serves the notifications. The caller closes it.
func NewInserter(ctx context.Context, pool *pgxpool.Pool, schema string) (*Inserter, error) {
	driver := riverpgxv5.New(pool)
	if err := driver.GetExecutor().InitDriver(ctx); err != nil {
		return nil, fmt.Errorf("prepare to insert jobs: %w", err)
	}
	client, err := river.NewClient(driver, &river.Config{
		// River drops its notification of a job within the cooldown of the last one
		Schema: schema, FetchCooldown: time.Millisecond, FetchPollInterval: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("prepare to insert jobs: %w", err)
	}
	return &Inserter{client, schema, newNotifier(driver.GetExecutor(), schema)}, nil
}

// few is up to how many jobs an INSERT costs less than a COPY: it needs no round trip of its own, since its
// result need not be waited for.
const few = 30

// Insert adds one job per target. A few jobs are sent with Exec; more travel by a single COPY, and what is in
// memory then does not depend on their number. Once the transaction has committed, call Inserted.
func (i *Inserter) Insert(ctx context.Context, tx pgx.Tx, c round.Consumer, jobs round.Jobs) error {
	if len(jobs.Targets) == 0 {
		return nil
	}
	table := pgx.Identifier{i.schema, "river_job"}
	if len(jobs.Targets) <= few {
		return insertFew(ctx, tx, table, c, jobs)
	}
	return copyJobs(ctx, tx.Conn(), table, columnsOf(jobs), newCopyRows(c, jobs), len(jobs.Targets))
}

// Inserted tells River's workers that a committed round has put jobs into a queue. It does not block.
func (i *Inserter) Inserted(queue string) { i.notifier.mark(queue) }

// Close tells of the last jobs and ends. The pool must still be open.
func (i *Inserter) Close() { i.notifier.close() }

// insertFew sends one statement, and the same one whatever the number of targets.
func insertFew(ctx context.Context, tx pgx.Tx, table pgx.Identifier, c round.Consumer, jobs round.Jobs) error {
	args := make([]string, len(jobs.Targets))
	for i, t := range jobs.Targets {
		encoded, err := appendArgs(nil, t, jobs.Epoch)
		if err != nil {
			return err
		}
		args[i] = string(encoded)
	}
	values := []any{args, c.Job.Kind, c.Job.MaxAttempts, c.Job.Priority, c.Job.Queue, []string{c.Name}}
	arrays, metadata := `unnest($1::text[]) AS a (args)`, ``
	if jobs.Traces != nil {
		all := make([]string, len(jobs.Targets))
		for i, t := range jobs.Targets {
			all[i] = string(appendMetadata(nil, jobs.Traces[t.Seq]))
		}
		values = append(values, all)
		arrays, metadata = `unnest($1::text[], $7::text[]) AS a (args, metadata)`, `, a.metadata::jsonb`
	}
	_, err := tx.Exec(ctx, `INSERT INTO `+table.Sanitize()+` (`+strings.Join(columnsOf(jobs), ", ")+`)
SELECT a.args::jsonb, $2, $3, $4, $5, $6`+metadata+` FROM `+arrays, values...)
	return err
}

// InsertOwn adds a job that a handler made itself: args are stored as their JSON, job says where to; zero
// values are River's defaults. It carries the traceparent of its event, when that has one.
func (i *Inserter) InsertOwn(ctx context.Context, tx pgx.Tx, args postgres.OwnArgs, job round.Job, traceparent string) error {
	if args == nil {
		return errors.New("insert a job: no arguments")
	}
	// by COPY too: River's other way of inserting needs the right to UPDATE its table
	options := &river.InsertOpts{MaxAttempts: job.MaxAttempts, Priority: job.Priority, Queue: job.Queue, Metadata: appendMetadata(nil, traceparent)}
	_, err := i.client.InsertManyFastTx(ctx, tx, []river.InsertManyParams{{Args: args, InsertOpts: options}})
	if err != nil {
		return fmt.Errorf("insert a job of kind %q: %w", args.Kind(), err)
	}
	return nil
}
