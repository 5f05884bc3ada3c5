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
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/round"
)

// Chunk is how many jobs one COPY carries: large enough that the round trip does not matter, small enough
// that an event with a hundred thousand targets needs little memory.
const Chunk = 2000

// notifyCooldown is the shortest time between two notifications of the same queue. River's default drops
// those of the next 100 ms, and a job would wait for its worker's poll.
const notifyCooldown = time.Millisecond

// Args are the arguments of an engine's job. A worker program can decode its jobs into this type.
type Args struct {
	Seq       int64  `json:"seq"`       // the event's number
	Recipient string `json:"recipient"` // who it is for; empty under the rule none
	Epoch     string `json:"epoch"`     // the history that Seq belongs to, a UUID
}

// Inserter inserts the jobs of rounds. It is safe for use by many goroutines.
type Inserter struct {
	client *river.Client[pgx.Tx]
}

// NewInserter makes an Inserter for the River tables in schema. The pool is used once, to learn what the
// server can do; jobs are inserted in the transactions that Insert is given.
func NewInserter(ctx context.Context, pool *pgxpool.Pool, schema string) (*Inserter, error) {
	driver := riverpgxv5.New(pool)
	if err := driver.GetExecutor().InitDriver(ctx); err != nil {
		return nil, fmt.Errorf("prepare to insert jobs: %w", err)
	}
	client, err := river.NewClient(driver, &river.Config{
		Schema: schema, FetchCooldown: notifyCooldown, FetchPollInterval: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("prepare to insert jobs: %w", err)
	}
	return &Inserter{client}, nil
}

// Insert adds one job per target by COPY, a chunk at a time. A recipient that JSON or PostgreSQL cannot
// hold as it is refuses the whole call: nobody's name is mended silently.
func (i *Inserter) Insert(ctx context.Context, tx pgx.Tx, c round.Consumer, epoch string, targets []round.Target) error {
	options := &river.InsertOpts{
		MaxAttempts: c.Job.MaxAttempts, Priority: c.Job.Priority, Queue: c.Job.Queue, Tags: []string{c.Name},
	}
	params := make([]river.InsertManyParams, 0, min(len(targets), Chunk))
	for len(targets) > 0 {
		params = params[:0]
		for _, t := range targets[:min(len(targets), Chunk)] {
			encoded, err := encode(t, epoch)
			if err != nil {
				return err
			}
			params = append(params, river.InsertManyParams{Args: raw{c.Job.Kind, encoded}, InsertOpts: options})
		}
		if _, err := i.client.InsertManyFastTx(ctx, tx, params); err != nil {
			return err
		}
		targets = targets[len(params):]
	}
	return nil
}

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

// encode writes the arguments of a target.
func encode(t round.Target, epoch string) (json.RawMessage, error) {
	if !utf8.ValidString(t.Recipient) || strings.ContainsRune(t.Recipient, 0) {
		return nil, fmt.Errorf("recipient %q of event %d is not text in UTF-8 without zero bytes", t.Recipient, t.Seq)
	}
	recipient, err := json.Marshal(t.Recipient)
	if err != nil {
		return nil, fmt.Errorf("recipient %q of event %d: %w", t.Recipient, t.Seq, err)
	}
	b := make([]byte, 0, len(recipient)+len(epoch)+64)
	b = append(b, `{"seq":`...)
	b = strconv.AppendInt(b, t.Seq, 10)
	b = append(b, `,"recipient":`...)
	b = append(b, recipient...)
	b = append(b, `,"epoch":"`...)
	b = append(b, epoch...)
	return append(b, `"}`...), nil
}

// raw are arguments of a kind that is known only at run time, already encoded.
type raw struct {
	kind    string
	encoded json.RawMessage
}

// Kind is the job's kind; River asks the value, so that one type serves every kind.
func (r raw) Kind() string { return r.kind }

// MarshalJSON is what was encoded.
func (r raw) MarshalJSON() ([]byte, error) { return r.encoded, nil }

// UnmarshalJSON keeps a copy of the arguments.
func (r *raw) UnmarshalJSON(b []byte) error {
	r.encoded = append(r.encoded[:0], b...)
	return nil
}
