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
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"golang.org/x/sync/errgroup"

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

// Insert adds one job per target by COPY, a chunk at a time; while one chunk is on its way the next is made
// ready. A recipient that JSON or PostgreSQL cannot hold as it is refuses the whole call: nobody's name is
// mended silently.
func (i *Inserter) Insert(ctx context.Context, tx pgx.Tx, c round.Consumer, epoch string, targets []round.Target) error {
	options := &river.InsertOpts{
		MaxAttempts: c.Job.MaxAttempts, Priority: c.Job.Priority, Queue: c.Job.Queue, Tags: []string{c.Name},
	}
	if len(targets) <= Chunk {
		return i.insertChunk(ctx, tx, c.Job.Kind, options, epoch, targets)
	}
	turns := &turns{Tx: tx}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for len(targets) > 0 && ctx.Err() == nil {
		chunk := targets[:min(len(targets), Chunk)]
		targets = targets[len(chunk):]
		group.Go(func() error { return i.insertChunk(ctx, turns, c.Job.Kind, options, epoch, chunk) })
	}
	return group.Wait()
}

// insertChunk adds the jobs of one COPY.
func (i *Inserter) insertChunk(ctx context.Context, tx pgx.Tx, kind string, options *river.InsertOpts, epoch string, targets []round.Target) error {
	params := make([]river.InsertManyParams, len(targets))
	for n, t := range targets {
		encoded, err := encode(t, epoch)
		if err != nil {
			return err
		}
		params[n] = river.InsertManyParams{Args: raw{kind, encoded}, InsertOpts: options}
	}
	_, err := i.client.InsertManyFastTx(ctx, tx, params)
	return err
}

// turns lets two chunks use one connection in turn. River touches it only by what is guarded here.
type turns struct {
	pgx.Tx
	mu sync.Mutex
}

// CopyFrom waits for the other chunk.
func (t *turns) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err // the other chunk failed, and the transaction with it
	}
	return t.Tx.CopyFrom(ctx, table, columns, rows)
}

// Exec waits for the other chunk.
func (t *turns) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Tx.Exec(ctx, sql, args...)
}

// Query is refused: its rows would be read while the other chunk uses the connection.
func (t *turns) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, errTurns }

// QueryRow is refused like Query.
func (t *turns) QueryRow(context.Context, string, ...any) pgx.Row { return refusedRow{} }

type refusedRow struct{}

func (refusedRow) Scan(...any) error { return errTurns }

var errTurns = errors.New("a chunk of jobs is inserted by COPY only")

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
