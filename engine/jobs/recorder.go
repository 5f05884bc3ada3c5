// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"example.com/bothy/engine/round"
)

// Recorder works every declared kind by counting it. It is for dev, on a database that nobody else uses:
// a River client that works jobs can become leader of its schema.
type Recorder struct {
	client *river.Client[pgx.Tx]
	after  map[string]int64 // by consumer: jobs of events up to here are not counted

	mu     sync.Mutex
	worked map[string]int
}

// recorderWorkers is how many jobs of one queue are recorded at once.
const recorderWorkers = 100

// NewRecorder makes a recorder for the kinds and queues of the consumers. It works every job and counts
// those whose event is above after, the number of each consumer that an earlier run came to; nil counts
// all. Start starts it.
func NewRecorder(pool *pgxpool.Pool, schema string, consumers []round.Consumer, after map[string]int64, logger *slog.Logger) (*Recorder, error) {
	r := &Recorder{worked: map[string]int{}, after: after}
	workers := river.NewWorkers()
	queues := map[string]river.QueueConfig{}
	known := map[string]bool{}
	for _, c := range consumers {
		queues[c.Job.Queue] = river.QueueConfig{MaxWorkers: recorderWorkers}
		if !known[c.Job.Kind] {
			known[c.Job.Kind] = true
			river.AddWorkerArgs(workers, raw{kind: c.Job.Kind}, &record{recorder: r})
		}
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Schema: schema, Queues: queues, Workers: workers, Logger: logger,
		FetchCooldown: time.Millisecond, FetchPollInterval: 100 * time.Millisecond, SoftStopTimeout: 2 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the recorder: %w", err)
	}
	r.client = client
	return r, nil
}

// Start begins to work jobs; it goes on until Stop.
func (r *Recorder) Start(ctx context.Context) error {
	if err := r.client.Start(ctx); err != nil {
		return fmt.Errorf("start the recorder: %w", err)
	}
	return nil
}

// Stop ends the work; jobs that are running are finished, or given back.
func (r *Recorder) Stop(ctx context.Context) error {
	if err := r.client.Stop(ctx); err != nil {
		return fmt.Errorf("stop the recorder: %w", err)
	}
	return nil
}

// Worked is how many jobs were counted for each consumer, since Start.
func (r *Recorder) Worked() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	worked := make(map[string]int, len(r.worked))
	maps.Copy(worked, r.worked)
	return worked
}

// record is the worker of every kind.
type record struct {
	river.WorkerDefaults[raw]
	recorder *Recorder
}

// Work counts the job for the consumer that its tag names.
func (w *record) Work(_ context.Context, job *river.Job[raw]) error {
	if len(job.Tags) == 0 {
		return nil
	}
	consumer := job.Tags[0]
	if after := w.recorder.after[consumer]; after > 0 {
		var of struct {
			Seq int64 `json:"seq"`
		}
		if err := json.Unmarshal(job.EncodedArgs, &of); err != nil || of.Seq <= after {
			return nil // of an earlier run, or of somebody else's
		}
	}
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	w.recorder.worked[consumer]++
	return nil
}

// raw are arguments of a kind that is known only at run time, still encoded.
type raw struct {
	kind    string
	encoded json.RawMessage
}

// Kind is the job's kind; River asks the value, so that one type serves every kind.
func (r raw) Kind() string { return r.kind }

// UnmarshalJSON keeps a copy of the arguments.
func (r *raw) UnmarshalJSON(b []byte) error {
	r.encoded = append(r.encoded[:0], b...)
	return nil
}
