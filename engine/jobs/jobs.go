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
// and its tag is the name of the consumer. Together they are the stable identity of a delivery.
package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
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
	driver *riverpgxv5.Driver
	client *river.Client[pgx.Tx] // for the jobs that handlers make themselves
	schema string
}

// NewInserter makes an Inserter for the River tables in schema. The pool is used once, to learn what the
// server can do; jobs are inserted in the transactions that Insert is given.
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
	return &Inserter{driver, client, schema}, nil
}

// Insert adds one job per target with a single COPY, and tells River's workers of the queue. What it holds
// in memory does not depend on the number of targets.
func (i *Inserter) Insert(ctx context.Context, tx pgx.Tx, c round.Consumer, epoch string, targets []round.Target) error {
	if len(targets) == 0 {
		return nil
	}
	table := pgx.Identifier{i.schema, "river_job"}
	if err := copyJobs(ctx, tx.Conn(), table, newCopyRows(c, epoch, targets), len(targets)); err != nil {
		return err
	}
	queue, err := json.Marshal(map[string]string{"queue": c.Job.Queue})
	if err != nil {
		return fmt.Errorf("name the queue %q: %w", c.Job.Queue, err)
	}
	return i.driver.UnwrapExecutor(tx).NotifyMany(ctx, &riverdriver.NotifyManyParams{
		Payload: []string{string(queue)}, Schema: i.schema, Topic: insertTopic,
	})
}

// insertTopic is what River's workers listen to for new jobs of their queues.
const insertTopic = "river_insert"

// InsertOwn adds a job that a handler made itself: args are stored as their JSON, job says where to; zero
// values are River's defaults.
func (i *Inserter) InsertOwn(ctx context.Context, tx pgx.Tx, args postgres.OwnArgs, job round.Job) error {
	if args == nil {
		return errors.New("insert a job: no arguments")
	}
	// by COPY too: River's other way of inserting needs the right to UPDATE its table
	options := &river.InsertOpts{MaxAttempts: job.MaxAttempts, Priority: job.Priority, Queue: job.Queue}
	_, err := i.client.InsertManyFastTx(ctx, tx, []river.InsertManyParams{{Args: args, InsertOpts: options}})
	if err != nil {
		return fmt.Errorf("insert a job of kind %q: %w", args.Kind(), err)
	}
	return nil
}
