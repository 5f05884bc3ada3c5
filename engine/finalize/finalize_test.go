// SPDX-License-Identifier: Apache-2.0

package finalize_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"example.com/bothy/definitions"
	"example.com/bothy/engine/finalize"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/restore"
	"example.com/bothy/engine/round"
)

// recorded is a transaction that only writes down what it is asked for.
type recorded struct {
	sessions []restore.Session
	state    restore.State
	details  finalize.Details
	calls    []string
	fails    string // the call that fails
	stop     func() // called before the call that fails
	commits  bool
	commit   error
}

var errFake = errors.New("fake")

func (r *recorded) call(name string) error {
	r.calls = append(r.calls, name)
	if name != r.fails {
		return nil
	}
	if r.stop != nil {
		r.stop()
	}
	return errFake
}

func (r *recorded) Sessions(_ context.Context, roles []string) ([]restore.Session, error) {
	return r.sessions, r.call("sessions " + strings.Join(roles, "+"))
}

func (r *recorded) Look(context.Context) (restore.State, error) { return r.state, r.call("look") }

func (r *recorded) Lock(context.Context) (restore.State, error) { return r.state, r.call("lock") }

func (r *recorded) SetCounter(context.Context, int64) error { return r.call("counter") }

func (r *recorded) SetEpoch(_ context.Context, epoch string) error { return r.call("epoch " + epoch) }

func (r *recorded) Move(_ context.Context, table, column string, to int64) (restore.Moved, error) {
	return restore.Moved{Table: table, Column: column, To: to, Rows: 1, Passed: &restore.Range{First: 3, Last: to}}, r.call("move " + table)
}

func (r *recorded) MoveDeclared(context.Context, int64) ([]restore.Moved, error) {
	return nil, r.call("own")
}

func (r *recorded) SettleJobs(_ context.Context, rule restore.JobsRule, epoch string) ([]restore.JobCount, error) {
	return nil, r.call("jobs " + string(rule) + " " + epoch)
}

func (r *recorded) StoreIdentity(context.Context, round.Identity, string) error {
	return r.call("identity")
}

func (r *recorded) Audit(_ context.Context, action string, details any) (int64, error) {
	r.details, _ = details.(finalize.Details)
	return 9, r.call("audit " + action)
}

func (r *recorded) Finalize(ctx context.Context, run func(context.Context, finalize.Tx) bool) error {
	r.commits = run(ctx, r)
	if r.commits {
		return r.commit
	}
	return nil
}

func table(t *testing.T) *machine.Machine {
	t.Helper()
	file, text := definitions.Restore()
	m, problems := machine.Load(file, text, finalize.Vocabulary())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRun comes to every end: what was done on the way, whether it was committed, and what is told of it.
func TestRun(t *testing.T) {
	t.Parallel()
	at := func(timeline, counter, highest int64) restore.State {
		cursor := int64(2)
		return restore.State{
			Stored: round.Identity{System: 7, Timeline: 1}, Current: round.Identity{System: 7, Timeline: timeline}, Epoch: "old", Environment: "production",
			Counter: &counter, Highest: highest, Cursors: []restore.Cursor{{Table: "event_consumer_cursors", Rows: 1, Lowest: &cursor, Top: &cursor, Named: []restore.Position{{Name: "push", Seq: 2}}}},
		}
	}
	manifest := &restore.Manifest{Version: 1, SystemIdentifier: 7, TimelineID: 1, SyncEpoch: "old", HeadSeq: 10, Environment: "production"}
	other := *manifest
	other.HeadSeq = 11
	const begun = "look, sessions app+producers, lock"
	const whole = begun + ", epoch new, move event_consumer_cursors, move agent_consumer_cursors, move webhook_subscriptions, own, jobs cancel new, identity, audit instance.restore_finalized"
	for name, tt := range map[string]struct {
		r     recorded
		o     finalize.Options
		end   string
		calls string
	}{
		"restored":            {recorded{state: at(2, 10, 10)}, finalize.Options{}, finalize.EndFinalized, whole},
		"in parts":            {recorded{state: at(1, 8, 10)}, finalize.Options{}, finalize.EndFinalized, strings.Replace(whole, "lock,", "lock, counter,", 1)},
		"forced":              {recorded{state: at(1, 10, 10)}, finalize.Options{Force: true}, finalize.EndFinalized, whole},
		"a copy":              {recorded{state: at(2, 10, 10)}, finalize.Options{Environment: "staging"}, finalize.EndFinalized, whole},
		"moved":               {recorded{state: at(2, 10, 10)}, finalize.Options{Manifest: manifest}, finalize.EndRelocated, begun + ", identity, audit instance.relocated"},
		"moved, events lost":  {recorded{state: at(2, 10, 10)}, finalize.Options{Manifest: &other}, finalize.EndDifferent, begun},
		"nothing to do":       {recorded{state: at(1, 10, 10)}, finalize.Options{}, finalize.EndAlready, "look"},
		"nothing moved":       {recorded{state: at(1, 10, 10)}, finalize.Options{Manifest: manifest}, finalize.EndAlready, "look"},
		"not moved, other":    {recorded{state: at(1, 10, 10)}, finalize.Options{Manifest: &other}, finalize.EndDifferent, begun},
		"moved, relabelled":   {recorded{state: at(2, 10, 10)}, finalize.Options{Manifest: manifest, Environment: "staging"}, finalize.EndDifferent, begun},
		"busy, nothing to do": {recorded{state: at(1, 10, 10), sessions: []restore.Session{{PID: 1}}}, finalize.Options{}, finalize.EndAlready, "look"},
		"connected":           {recorded{state: at(2, 10, 10), sessions: []restore.Session{{PID: 1}}}, finalize.Options{}, finalize.EndRefused, "look, sessions app+producers"},
		"another environment": {recorded{state: at(1, 10, 10)}, finalize.Options{Environment: "staging"}, finalize.EndForeign, begun},
		"not to be read":      {recorded{state: restore.State{Stored: round.Identity{System: 7, Timeline: 1}}}, finalize.Options{Force: true}, finalize.EndUnreadable, begun},
		"a step breaks":       {recorded{state: at(2, 10, 10), fails: "own"}, finalize.Options{}, finalize.EndFailed, whole[:strings.Index(whole, ", jobs")]},
		"the commit breaks":   {recorded{state: at(2, 10, 10), commit: errFake}, finalize.Options{}, finalize.EndFailed, whole},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.o.Epoch, tt.o.Jobs = "new", restore.CancelJobs
			r := finalize.Run(t.Context(), &tt.r, table(t), tt.o)
			if got := strings.Join(tt.r.calls, ", "); r.End.Name != tt.end || got != tt.calls {
				t.Errorf("got end %s after\n%s\nwant %s after\n%s", r.End.Name, got, tt.end, tt.calls)
			}
			if r.Done() != (tt.end == finalize.EndFinalized || tt.end == finalize.EndRelocated) || (r.Err != nil) != (tt.end == finalize.EndFailed) {
				t.Errorf("got done %v and error %v at end %s", r.Done(), r.Err, r.End.Name)
			}
			if !r.Done() && (r.Deed != 0 || r.EpochTo != r.EpochFrom || r.Moved != nil || r.Flaws != nil) {
				t.Errorf("what was undone is told as done: %+v", r)
			}
			if r.End.Name == finalize.EndFinalized && (r.EpochTo != "new" || r.EpochFrom != "old" || r.Deed != 9 || tt.r.details.Abandoned == nil) {
				t.Errorf("got %+v with details %+v", r, tt.r.details)
			}
		})
	}
}

// A command that is stopped changes nothing and is no failure.
func TestRunIsStopped(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	r := recorded{fails: "lock", stop: stop}
	report := finalize.Run(ctx, &r, table(t), finalize.Options{})
	if report.End.Name != finalize.EndInterrupted || r.commits || report.End.Failure != "" {
		t.Errorf("got end %s, committed %v, want interrupted and nothing kept", report.End.Name, r.commits)
	}
}
