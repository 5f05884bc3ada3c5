// SPDX-License-Identifier: Apache-2.0

// Package simulate runs the real rounds against a model of PostgreSQL, under faults, in an order that a seed
// decides, and checks the promises of the engine after every step.
//
//	seed -> Shape (who takes part, which faults) -> schedule: one step after the other
//	                                                   |
//	  engine processes: the real consumer.Loop, consumer.Service and round.yaml, each lane a coroutine
//	  store:            the round trips of engine/postgres, statement by statement
//	  database:         committed states, sessions, row locks, a snapshot per statement
//	  producers, listeners, retention, damage, restores
//	                                                   |
//	                                        checks -> Violation, with the steps that led to it
//
// Nothing here has a clock, and nothing runs by itself: a lane runs until it waits for the server or between
// two rounds, and the schedule picks who is next. The same seed gives the same steps, byte for byte.
//
// It refuses to know SQL, pgx and River. What the model leaves out, docs/simulation.md says.
package simulate

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"example.com/bothy/definitions"
	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/round"
)

// Shape is who takes part in a schedule and what may go wrong.
type Shape struct {
	Workers   int // engine processes, from 1 to 4
	Consumers int // from 1 to 3
	Producers int // from 1 to 3
	Events    int // about how many are appended
	Steps     int // before faults end and everything is mended
	Faults    Faults
	first     int // index in rules of the first consumer
	batch     int // of the engine's version 1
	maxJobs   int
	after     int   // failures in a row before a consumer sets an event aside; 0: it stands still
	grows     bool  // version 2 of the engine has one consumer more
	strategy  uint8 // how the next step is picked
	stop      point // the statement that the strategy stopping likes to stop at
	whole     bool  // a round trip is atomic, and so is the COMMIT of a producer: for the comparison with PostgreSQL
}

// Faults is a set of what may go wrong.
type Faults uint32

// The faults.
const (
	FaultCrash     Faults = 1 << iota // an engine process is killed
	FaultStop                         // an engine process is stopped, perhaps with its budget over
	FaultError                        // a statement fails: deadlock, timeout, full disk
	FaultCut                          // a connection breaks: what was sent, or the reply, is lost
	FaultTerminate                    // a backend is terminated
	FaultListener                     // the listening connection breaks, or dies without a word
	FaultRetention                    // partitions are dropped before a consumer came
	FaultHole                         // a row of the log is lost
	FaultCounter                      // the counter goes back
	FaultRestore                      // a backup is restored
	FaultPromote                      // a standby is promoted under connected engines
	FaultMix                          // log and counter are restored, cursors and jobs are not
	FaultRetire                       // a cursor is removed while an older engine runs its consumer
	FaultHandler                      // a handler ends or breaks the transaction
	FaultPoison                       // rules fail on one event of the catalogue
	allFaults      = 1<<iota - 1
)

// shapeOf draws the shape of a schedule.
func shapeOf(r *rand.Rand) Shape {
	s := Shape{
		Workers: 2 + r.IntN(3), Consumers: 1 + r.IntN(maxConsumers), Producers: 1 + r.IntN(3), Events: 4 + r.IntN(12),
		Steps: 100 + r.IntN(250), first: r.IntN(len(rules)), batch: 1 + r.IntN(4), maxJobs: 1 + r.IntN(8),
		after: r.IntN(3), grows: r.IntN(4) == 0, strategy: uint8(r.IntN(3)), stop: points[r.IntN(len(points))], //nolint:gosec // small
	}
	// few kinds of faults at a time find more than all at once: they do not hide each other
	for range r.IntN(5) {
		s.Faults |= 1 << r.IntN(15)
	}
	if r.IntN(16) == 0 {
		s.Faults = allFaults
	}
	if r.IntN(4) == 0 { // only some rules can fail on an event
		s.Faults |= FaultPoison
		s.first, s.after = 3+r.IntN(2), 1+r.IntN(2)
		if r.IntN(3) == 0 {
			s.Faults |= FaultRetention
		}
	}
	return s
}

// Result is how a schedule went.
type Result struct {
	Seed      uint64
	Shape     Shape
	Steps     int            // how many were taken
	Violation *Violation     // nil when every promise was kept
	Settled   bool           // every step was taken: what broke, if anything, broke afterwards
	Trace     string         // who did what and what was committed then; only when asked for
	Met       map[string]int // how often each end of the table, and each moment worth counting

	taken []choice
}

// Option changes how a schedule runs.
type Option func(*world)

// Moments that a search must meet, or it is blind: they are counted in Result.Met beside the ends.
const (
	metReplyLost   = "COMMIT took place and its reply was lost"
	metOrphan      = "COMMIT took place after its process was killed"
	metOverdue     = "COMMIT took place after the budget of a stop was over"
	metRolledBack  = "a process died inside its transaction"
	metSilentWake  = "an append notified nobody"
	metFinalized   = "finalize waited for a round"
	metAfterLoss   = "a round left an event that fails to the next, since others were lost before it"
	metSecondStart = "two versions of the engine ran at once"
)

// moments are all of them.
var moments = []string{metReplyLost, metOrphan, metOverdue, metRolledBack, metSilentWake, metFinalized, metAfterLoss, metSecondStart}

// WithTrace keeps a readable trace.
func WithTrace() Option { return func(w *world) { w.tracing = true } }

// Table is the round table that the engine runs, proven.
func Table() (*machine.Machine, error) {
	file, text := definitions.Round()
	table, problems := machine.Load(file, text, consumer.Vocabulary())
	return table, problems.Err()
}

// Run runs the schedule of a seed with a proven table.
func Run(table *machine.Machine, seed uint64, options ...Option) Result {
	r := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(table, shapeOf(r), options...)
	w.random = r
	w.seed = seed
	return w.run(nil)
}

// newWorld makes everything that takes part.
func newWorld(table *machine.Machine, shape Shape, options ...Option) *world {
	w := &world{table: table, shape: shape, left: shape.Events, timelines: 1, met: map[string]int{}}
	w.storeOf = func(l *lane) consumer.Store { return store{l} }
	for _, option := range options {
		option(w)
	}
	for version := range w.declared {
		for i := range shape.Consumers {
			d := rules[(shape.first+i)%len(rules)]
			d.index, d.Batch, d.MaxJobs, d.QuarantineAfter = i, shape.batch+version, shape.maxJobs, shape.after
			w.declared[version] = append(w.declared[version], &d)
		}
	}
	w.consumers = w.declared[0]
	for i, c := range w.consumers {
		for _, e := range catalogue {
			w.wants[i] = append(w.wants[i], c.wanted(e))
		}
	}
	identity := round.Identity{System: 1, Timeline: 1}
	w.db = &database{now: &state{epoch: "epoch-0", stored: identity, current: identity}, changed: w.changed}
	for slot := range shape.Workers {
		w.processes = append(w.processes, w.newProcess(slot, 1))
	}
	for i := range shape.Producers {
		w.producers = append(w.producers, &producer{name: fmt.Sprintf("producer %d", i+1)})
	}
	return w
}

// world is one schedule on its way.
type world struct {
	table  *machine.Machine
	shape  Shape
	seed   uint64
	flaws  flaws
	random *rand.Rand

	db        *database
	declared  [2][]*declared // by version of the engine, from 1
	consumers []*declared
	wants     [maxConsumers][]uint8 // per consumer and entry of the catalogue
	processes []*process
	producers []*producer

	backups    []*state
	finalizing *finalize
	timelines  int64
	epochs     int
	left       int // events that may still be staged
	appended   int // the version of the last append

	scripted  bool // the steps are given
	abrupt    bool // it ends with the last step of the script
	settling  bool // no fault happens any more
	polls     bool // a pause may end by itself
	strategy  strategy
	options   []choice
	faults    []choice
	taken     []choice
	violation *Violation
	seen      [maxConsumers][]uint8
	met       map[string]int

	storeOf func(*lane) consumer.Store
	follow  func(choice) // sees every step; may be nil

	tracing bool
	trace   bytes.Buffer
}

// consumersOf are those that a version of the engine declares.
func (w *world) consumersOf(version int) []*declared {
	list := w.declared[version-1]
	if version == 1 && w.shape.grows && len(list) > 1 {
		list = list[:len(list)-1]
	}
	return list
}

// note writes one line of the trace.
func (w *world) note(who, format string, args ...any) {
	if w.tracing {
		fmt.Fprintf(&w.trace, "%4d  %-18s %s\n", len(w.taken), who, fmt.Sprintf(format, args...))
	}
}
