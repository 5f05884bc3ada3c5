// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/bothy/engine/problem"
	"example.com/bothy/engine/round"
)

// Stage is a database on which rules are rehearsed. It is needed only for tests that reach a query or a handler.
type Stage interface {
	// Setup runs a script. A *RefusedError says where in it the database stopped.
	Setup(ctx context.Context, sql string) error
	// Rehearse runs the rules of consumers, named in the order of the answers, over rows and events that no
	// later rehearsal sees. A *RefusedError is a row or an event that the database does not take.
	Rehearse(ctx context.Context, rows []Row, events []round.Event, consumers []string) ([]Answer, error)
}

// Row is one row of a table: a JSON object of its columns.
type Row struct {
	Table  string
	Values json.RawMessage
}

// Answer is what the rule of one consumer gave.
type Answer struct {
	Targets []round.Target
	Own     []OwnJob // that a handler made itself
	Err     error    // of the rule
	At      int      // the place in a query that Err is about, in characters from 0, or -1
}

// OwnJob is a job that a handler made itself, with what its arguments say of an event and a recipient.
type OwnJob struct {
	round.Job
	round.Target
}

// RefusedError is a part of a test file that the database does not take.
type RefusedError struct {
	Row, Event int // its index, or -1
	At         int // the place in a script of the setup, in characters from 0, or -1
	What       string
	Fix        string // of a script that the database never saw; empty when it has refused it
}

func (r *RefusedError) Error() string { return r.What }

// Verdict is what became of a test.
type Verdict int

// The verdicts. The zero value is none of them.
const (
	Passed Verdict = iota + 1
	Failed         // the jobs are not those that it expects
	Broken         // it could not be run
)

// Result is one test that was run.
type Result struct {
	Name    string
	Test    problem.Position // of the test
	At      problem.Position // of what is wrong, or of the test
	Verdict Verdict
	What    string   // what is wrong, in one line
	Details []string // the jobs that differ, the rules that failed
	Took    time.Duration
}

// Report is what came of the tests of one file.
type Report struct {
	File     string
	Results  []Result
	Problems problem.List // of the file itself: then there are no results
	Err      error        // why there is no database for those that are Broken
}

// errNoStage ends a test without a database.
var errNoStage = errors.New("it needs a database, and there is none")

// Run runs the tests whose names only lets pass. open gives a database; it is called when the first test needs
// one, and at most once.
func (f *File) Run(ctx context.Context, only func(name string) bool, open func(context.Context) (Stage, error)) Report {
	report := Report{File: f.name}
	var stage Stage
	opened := false
	for i := range f.tests {
		t := &f.tests[i]
		if !only(t.name) {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		begin := time.Now()
		if !opened && len(f.staged(t)) > 0 {
			opened = true
			stage, report.Err = f.prepare(ctx, open)
		}
		result := f.run(ctx, t, stage)
		result.Name, result.Test, result.Took = t.name, t.at, time.Since(begin)
		if result.At.Line == 0 {
			result.At = t.at
		}
		report.Results = append(report.Results, result)
	}
	return report
}

// prepare opens the database and runs the setup.
func (f *File) prepare(ctx context.Context, open func(context.Context) (Stage, error)) (Stage, error) {
	stage, err := open(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range f.setup {
		err := stage.Setup(ctx, s.sql)
		if refused, ok := errors.AsType[*RefusedError](err); ok {
			found := problem.Problem{
				At: s.place(refused.At), Severity: problem.Error, Code: "bad-setup",
				What: "the database refuses the setup: " + refused.What, Fix: "correct the SQL: it runs on an empty database, before the tests",
			}
			if refused.Fix != "" {
				found.What, found.Fix = "the setup cannot run here: "+refused.What, refused.Fix
			}
			return nil, problem.List{found}
		}
		if err != nil {
			return nil, fmt.Errorf("run the setup of %s: %w", f.name, err)
		}
	}
	return stage, nil
}

// staged are the consumers of a test whose rules need a database for its events.
func (f *File) staged(t *test) []round.Consumer {
	var list []round.Consumer
	for _, c := range t.consumers {
		if needsStage(c) && len(round.Select(t.events, c.Types)) > 0 {
			list = append(list, c)
		}
	}
	return list
}

func needsStage(c round.Consumer) bool {
	return c.Rule.Kind == round.RuleQuery || c.Rule.Kind == round.RuleHandler
}

// failure is a rule that failed.
type failure struct {
	consumer string
	at       problem.Position
	err      error
}

// run runs one test.
func (f *File) run(ctx context.Context, t *test, stage Stage) Result {
	jobs, failures, err := f.jobsOf(ctx, t, stage)
	if err != nil {
		return f.broken(t, err)
	}
	if t.wantsError {
		return t.judgeError(failures)
	}
	if len(failures) > 0 {
		return Result{Verdict: Failed, What: titled("a rule failed", "rules failed", len(failures)), Details: lines(failures)}
	}
	return t.judge(jobs)
}

// broken says why a test could not be run.
func (f *File) broken(t *test, err error) Result {
	result := Result{Verdict: Broken, What: err.Error()}
	refused, ok := errors.AsType[*RefusedError](err)
	switch {
	case ok && refused.Row >= 0:
		result.At, result.What = t.rowAt[refused.Row], "the database refuses this row of "+t.rows[refused.Row].Table+": "+refused.What+" [bad-row]"
	case ok && refused.Event >= 0:
		result.At, result.What = t.eventAt[refused.Event], "the database refuses this event: "+refused.What+" [bad-event]"
	}
	return result
}

// jobsOf are the jobs that the consumers of a test create, and the rules that failed.
func (f *File) jobsOf(ctx context.Context, t *test, stage Stage) (jobs []Job, failures []failure, err error) {
	answers := map[string]Answer{}
	if staged := f.staged(t); len(staged) > 0 {
		if stage == nil {
			return nil, nil, errNoStage
		}
		names := make([]string, len(staged))
		for i, c := range staged {
			names[i] = c.Name
		}
		given, err := stage.Rehearse(ctx, t.rows, t.events, names)
		if err != nil {
			return nil, nil, err
		}
		for i, name := range names {
			answers[name] = given[i]
		}
	}
	for _, c := range t.consumers {
		answer, known := answers[c.Name]
		if !known {
			answer = decide(c, t.events)
		}
		if answer.Err != nil {
			failures = append(failures, failure{c.Name, f.subject.place(c.Name, answer.At), answer.Err})
			continue
		}
		for _, target := range answer.Targets {
			jobs = append(jobs, jobOf(c.Name, c.Job, target))
		}
		for _, own := range answer.Own {
			jobs = append(jobs, jobOf(c.Name, own.Job, own.Target))
		}
	}
	return jobs, failures, nil
}

// decide runs a rule that needs no database, or one that sees no event.
func decide(c round.Consumer, events []round.Event) Answer {
	targets, err := round.Replay(c, events, func(selected []round.Event, limit int, through int64) (round.Decision, error) {
		return round.Decide(c.Rule, selected, limit, through), nil
	})
	return Answer{Targets: targets, Err: err, At: -1}
}

func jobOf(consumer string, job round.Job, target round.Target) Job {
	return Job{
		Consumer: consumer, Event: int(target.Seq), Kind: job.Kind, Queue: job.Queue, Recipient: target.Recipient,
		MaxAttempts: job.MaxAttempts, Priority: job.Priority,
	}
}

// judgeError compares the rules that failed with the error that the test expects.
func (t *test) judgeError(failures []failure) Result {
	want := fmt.Sprintf("expects a rule to fail with %q", t.errorText)
	if len(failures) == 0 {
		return Result{Verdict: Failed, At: t.expectAt, What: want + ", and none fails"}
	}
	var others []failure
	for _, f := range failures {
		if !strings.Contains(f.err.Error(), t.errorText) {
			others = append(others, f)
		}
	}
	if len(others) > 0 {
		return Result{Verdict: Failed, At: t.expectAt, What: want + ", and " + titled("one fails", "some fail", len(others)) + " in another way", Details: lines(others)}
	}
	return Result{Verdict: Passed}
}

func lines(failures []failure) []string {
	list := make([]string, len(failures))
	for i, f := range failures {
		list[i] = fmt.Sprintf("%s: consumer %s: %v", f.at, f.consumer, f.err)
	}
	return list
}

// titled is one of two words for one and for many.
func titled(one, many string, n int) string {
	if n == 1 {
		return one
	}
	return many
}
