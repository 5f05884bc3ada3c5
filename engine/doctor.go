// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.com/bothy/engine/api"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/round"
)

// Severity says whether somebody has to do something about a finding.
type Severity string

// The severities.
const (
	SeverityWrong Severity = "wrong" // a promise is broken, or work stands still
	SeverityNote  Severity = "note"  // worth knowing, and no fault
)

// FindingCode is what a finding is about.
type FindingCode string

// The findings about the log, its counter and the installation.
const (
	FindingCounterBehind FindingCode = "counter_behind" // the log holds numbers that the counter has not given
	FindingRowGone       FindingCode = "row_gone"       // the counter or the identity is not there
	FindingUnfinalized   FindingCode = "unfinalized"    // the database is not the one whose history the cursors follow
	FindingHeld          FindingCode = "held"           // no engine with this configuration does any work here
	FindingHole          FindingCode = "hole"           // numbers that the log should hold and does not
	FindingUndeclared    FindingCode = "undeclared"     // a cursor or jobs of a consumer that the file does not declare
	FindingStaleEpoch    FindingCode = "stale_epoch"    // jobs from before a restore
)

// The findings about one consumer.
const (
	FindingNoCursor    FindingCode = "no_cursor"    // it never ran
	FindingCursorAhead FindingCode = "cursor_ahead" // its cursor is above the head
	FindingWaiting     FindingCode = "waiting"      // events that it has not reached
	FindingLost        FindingCode = "lost"         // events that retention removed before it reached them
	FindingQuarantined FindingCode = "quarantined"  // events that it failed on and set aside
	FindingBeforeStart FindingCode = "before_start" // events from before it began
	FindingJobMissing  FindingCode = "job_missing"  // an event that was passed lacks jobs, and nothing explains it
	FindingJobGone     FindingCode = "job_gone"     // the same, long enough ago for River to have deleted them
	FindingJobUnknown  FindingCode = "job_unknown"  // the same, by a consumer that may have begun later
	FindingJobDoubled  FindingCode = "job_doubled"  // a target has more than one job
	FindingJobNoEvent  FindingCode = "job_no_event" // a job whose event the log does not hold
	FindingJobAhead    FindingCode = "job_ahead"    // a job of an event that the cursor has not passed
	FindingJobExtra    FindingCode = "job_extra"    // a job that the rule does not give
	FindingRuleChanged FindingCode = "rule_changed" // a query gives others now, and its tables may have changed
	FindingRuleFails   FindingCode = "rule_fails"   // the rule cannot be run
	FindingHandler     FindingCode = "handler"      // only the handler could tell, and it is not asked
)

// Span is a run of numbers, both ends included.
type Span = postgres.Span

// Finding is one thing that the doctor found, in words.
type Finding struct {
	Code     FindingCode `json:"code"`
	Severity Severity    `json:"severity"`
	Consumer string      `json:"consumer,omitempty"` // empty when it is about the log
	What     string      `json:"what"`
	Do       string      `json:"do,omitempty"` // what to do about it
	Count    int64       `json:"count"`        // of events or jobs, whichever What speaks of
	Seqs     *Span       `json:"seqs,omitempty"`
	Examples []int64     `json:"examples,omitempty"` // the first few numbers
	Spans    []Span      `json:"spans,omitempty"`    // of holes, the first few
}

// Checkup is what was compared for one consumer.
type Checkup struct {
	Consumer string `json:"consumer"`
	Cursor   *int64 `json:"cursor"` // null when it has none
	Events   int64  `json:"events"` // events compared with their jobs
	Expected int64  `json:"expected"`
	Found    int64  `json:"found"`
	Missing  int64  `json:"missing"` // gone, unknown and changed ones included
	Doubled  int64  `json:"doubled"`
	Extra    int64  `json:"extra"` // jobs of no event included
}

// Diagnosis is what the doctor says about a database.
type Diagnosis struct {
	Healthy   bool      `json:"healthy"` // nothing is wrong
	Head      int64     `json:"head"`
	Floor     int64     `json:"floor"` // the lowest number that the log holds; 0 when it is empty
	Epoch     string    `json:"epoch"`
	Consumers []Checkup `json:"consumers"`
	Findings  []Finding `json:"findings"` // what is wrong first
}

// DoctorOptions say what is examined.
type DoctorOptions struct {
	Consumer string        // only this one; empty: all that are declared
	From     int64         // events below it are left out; 0: none is
	Timeout  time.Duration // the longest that one statement may run; 0: 30 seconds
	Chunk    int64         // events compared in one statement; 0: 50,000
	// Progress is told how many events of how many are done. It may be nil.
	Progress func(done, total int64)
}

const (
	doctorTimeout = 30 * time.Second
	doctorChunk   = 50_000
	// smallChunk is compared when doctorChunk took too long.
	smallChunk = 500
	// manyJobs of one consumer are not all read for a small chunk: each event's jobs are looked up instead. For fewer, an
	// index whose newest entries are not sorted in yet costs more than reading them.
	manyJobs  = 500_000
	jobsChunk = 50_000 // rows of River's table
)

// Doctor compares the log, the cursors and the jobs of a database, and explains what it finds. It changes
// nothing, runs no handler, and holds no snapshot for longer than one statement. An error is one of looking; what is
// wrong with the data is a finding.
func Doctor(ctx context.Context, cfg *config.Config, o DoctorOptions) (Diagnosis, error) {
	consumers := Consumers(cfg)
	if o.Consumer != "" {
		consumers = slices.DeleteFunc(consumers, func(c round.Consumer) bool { return c.Name != o.Consumer })
		if len(consumers) == 0 {
			return Diagnosis{}, fmt.Errorf("consumer %q is not declared in %s%s", o.Consumer, cfg.File(), hint(o.Consumer, cfg.Names()))
		}
	}
	if o.Timeout <= 0 {
		o.Timeout = doctorTimeout
	}
	if o.Chunk <= 0 {
		o.Chunk = doctorChunk
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	if err := cfg.ReadURLFile().Err(); err != nil {
		return Diagnosis{}, err
	}
	store, err := postgres.Open(ctx, postgres.Options{
		URL: cfg.Database.URL.Reveal(), Schema: cfg.Database.Schema, MaxConns: 1,
		StatementTimeout: o.Timeout, LockTimeout: cfg.Database.LockTimeout,
	})
	if err != nil {
		return Diagnosis{}, err
	}
	defer store.Close()
	x := examining{
		x: store.Examiner(cfg.Jobs.Schema), o: o, consumers: consumers, declared: cfg.Names(), guarded: cfg.Database.Guarded(),
		kinds: map[string][]string{}, byTag: map[string]Span{}, counts: map[string]int64{}, found: map[findingKey]*Finding{}, checkups: map[string]*Checkup{},
	}
	err = postgres.CheckSchema(ctx, store.Pool(), cfg.Database.Schema, cfg.Jobs.Schema)
	if gone, ok := errors.AsType[*postgres.MissingRowError](err); ok {
		x.add(Finding{Code: FindingRowGone, Severity: SeverityWrong, What: gone.Error(), Count: 1})
		return x.diagnosis(), nil // nothing can be compared without it
	}
	if behind, ok := errors.AsType[*postgres.CounterBehindError](err); ok {
		x.add(Finding{
			Code: FindingCounterBehind, Severity: SeverityWrong, What: behind.Error(), Count: behind.Highest - behind.Counter,
			Seqs: &Span{First: behind.Counter + 1, Last: behind.Highest}, Do: "compare the backup first: events after it may be lost; then run `engine restore finalize`",
		})
		err = nil
	}
	if err != nil {
		return Diagnosis{}, err
	}
	if err := x.held(ctx, store, cfg); err != nil {
		return Diagnosis{}, err
	}
	if err := x.examine(ctx); err != nil {
		return Diagnosis{}, err
	}
	return x.diagnosis(), nil
}

// held finds what keeps every engine with this configuration from working, beside a restore, which examine finds.
func (x *examining) held(ctx context.Context, store *postgres.Store, cfg *config.Config) error {
	r, err := store.Recognize(ctx)
	if err != nil {
		return err
	}
	for _, reason := range holds(r, x.guarded, cfg.Database.Environment) {
		if reason != api.Unfinalized {
			x.add(Finding{
				Code: FindingHeld, Severity: SeverityWrong, Count: 1,
				What: fmt.Sprintf("no engine with this configuration does any work on this database: %s", reason), Do: advice(reason, r, cfg.Database.Environment),
			})
		}
	}
	return nil
}

// findingKey is what findings are summed up by.
type findingKey struct {
	code     FindingCode
	severity Severity
	consumer string
}

// examining is one examination in the making.
type examining struct {
	x         *postgres.Examiner
	o         DoctorOptions
	consumers []round.Consumer
	declared  []string
	guarded   bool

	seen     postgres.Overview
	lives    map[string]life
	kinds    map[string][]string // of the jobs there are, by tag
	byTag    map[string]Span     // the numbers of the jobs of the present epoch, by tag
	counts   map[string]int64    // how many there are
	broken   []string            // consumers whose rule cannot be run
	found    map[findingKey]*Finding
	order    []findingKey
	checkups map[string]*Checkup
}

// maxExamples bounds how many numbers or spans a finding names.
const maxExamples = 5

// add records a finding, or adds to one of the same code and consumer.
func (x *examining) add(f Finding) {
	key := findingKey{f.Code, f.Severity, f.Consumer}
	have := x.found[key]
	if have == nil {
		x.found[key] = &f
		x.order = append(x.order, key)
		return
	}
	have.Count += f.Count
	if have.Seqs != nil && f.Seqs != nil {
		have.Seqs = &Span{First: min(have.Seqs.First, f.Seqs.First), Last: max(have.Seqs.Last, f.Seqs.Last)}
	}
	have.Examples = append(have.Examples, f.Examples[:min(len(f.Examples), maxExamples-len(have.Examples))]...)
	have.Spans = append(have.Spans, f.Spans[:min(len(f.Spans), max(0, maxExamples-len(have.Spans)))]...)
}

// diagnosis puts what is wrong first, and gives every finding its words.
func (x *examining) diagnosis() Diagnosis {
	d := Diagnosis{
		Healthy: true, Head: x.seen.Head, Floor: x.seen.Floor, Epoch: x.seen.Epoch, Consumers: []Checkup{}, Findings: []Finding{},
	}
	for _, c := range x.consumers {
		if checkup := x.checkups[c.Name]; checkup != nil {
			d.Consumers = append(d.Consumers, *checkup)
		}
	}
	for _, severity := range []Severity{SeverityWrong, SeverityNote} {
		for _, key := range x.order {
			if f := *x.found[key]; f.Severity == severity {
				x.word(&f)
				d.Findings = append(d.Findings, f)
				d.Healthy = d.Healthy && severity != SeverityWrong
			}
		}
	}
	return d
}

// since is by when an event must have occurred for its jobs to be there still: River deletes completed ones
// after a day, and where it still keeps older ones, after longer.
func (x *examining) since() time.Time {
	since := x.seen.Now.Add(-riverKeeps)
	if !x.seen.Kept.IsZero() && x.seen.Kept.Before(since) {
		since = x.seen.Kept
	}
	return since
}

// tags are the names under which the declared consumers' jobs may be, with the present name.
func (x *examining) tags() map[string]string {
	names := map[string]string{}
	for name := range x.seen.Rows {
		for _, former := range x.lives[name].formerNames() {
			names[former] = name
		}
	}
	for name := range x.seen.Rows {
		names[name] = name // a present name counts more than a former one
	}
	return names
}

// known are all names that the file or the database has for a consumer.
func (x *examining) known() []string {
	return slices.Concat(x.declared, slices.Collect(maps.Keys(x.tags())))
}
