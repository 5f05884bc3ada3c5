// SPDX-License-Identifier: Apache-2.0

package finalize

import (
	"context"
	"errors"
	"fmt"

	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/restore"
	"example.com/bothy/engine/round"
)

// Tx is the transaction of a finalize. The methods are called in the order of the restore table.
type Tx interface {
	// Look reads without a lock. What it says decides nothing but whether to go on.
	Look(ctx context.Context) (restore.State, error)
	// Sessions are the connections that stand in the way, of these roles (app, producers) and of running engines.
	// When there is none, no engine can begin to run until the transaction ends.
	Sessions(ctx context.Context, roles []string) ([]restore.Session, error)
	// Lock takes the locks, and then reads.
	Lock(ctx context.Context) (restore.State, error)
	// SetCounter sets the counter of the log, whether or not its row is there.
	SetCounter(ctx context.Context, head int64) error
	SetEpoch(ctx context.Context, epoch string) error
	// Move moves the cursors of a table of the engine's own.
	Move(ctx context.Context, table, column string, to int64) (restore.Moved, error)
	// MoveDeclared moves those of the user's own tables.
	MoveDeclared(ctx context.Context, to int64) ([]restore.Moved, error)
	// SettleJobs settles the unfinished jobs of every epoch but this one, and counts them.
	SettleJobs(ctx context.Context, rule restore.JobsRule, epoch string) ([]restore.JobCount, error)
	// StoreIdentity stores the identity, and the environment unless it is empty.
	StoreIdentity(ctx context.Context, identity round.Identity, environment string) error
	// Audit appends one deed on the installation and answers its number.
	Audit(ctx context.Context, action string, details any) (int64, error)
}

// Store runs one transaction; it commits when run returns true. An error means that it did not commit as far as
// anyone knows.
type Store interface {
	Finalize(ctx context.Context, run func(context.Context, Tx) (commit bool)) error
}

// Options say what is wanted.
type Options struct {
	Epoch       string            // the new one: random, never counted up
	Manifest    *restore.Manifest // of the final backup: the database was only moved
	Force       bool              // a new epoch, whatever the database is
	Jobs        restore.JobsRule
	Environment string // of consumers.yaml; empty: whatever the database says
	By          string // the account of the operating system, for the audit
}

// copied reports whether the manifest was taken on the very server that answers, or on one that cannot be told from it.
// Otherwise the relocation that the manifest is about has been finalized, and life goes on since.
func (o Options) copied(s restore.State) bool {
	return o.Manifest.SystemIdentifier == s.Current.System && o.Manifest.TimelineID == s.Current.Timeline
}

// differences are those of the database to the manifest, and of the file to the database: a relocation gives no new label.
func (o Options) differences(s restore.State) []restore.Difference {
	all := o.Manifest.Differences(s)
	if o.Environment != "" && s.Environment != "" && o.Environment != s.Environment && o.Manifest.Environment == s.Environment {
		all = append(all, restore.Difference{Field: "environment of the file", Manifest: o.Environment, Database: s.Environment})
	}
	return all
}

// Report is how it went. What was not come to is zero.
type Report struct {
	End         machine.End
	Err         error             // why it broke off
	Sessions    []restore.Session // that stand in the way
	State       restore.State     // before anything was done
	Flaws       []restore.Flaw    // that were put right
	Differences []restore.Difference
	EpochFrom   string
	EpochTo     string // the same as EpochFrom when the epoch is kept
	Moved       []restore.Moved
	Jobs        []restore.JobCount
	JobsRule    restore.JobsRule
	Environment string // that is stored now, when it changed
	Deed        int64  // its number in the audit
}

// Done reports whether the transaction was committed.
func (r Report) Done() bool { return r.End.Transaction == machine.Commit }

// Run runs the restore table once.
func Run(ctx context.Context, store Store, table *machine.Machine, o Options) Report {
	var b *bound
	var result machine.Result
	err := store.Finalize(ctx, func(ctx context.Context, tx Tx) bool {
		b = &bound{tx: tx, o: o}
		result = table.Run(ctx, b.step)
		return result.End.Transaction == machine.Commit
	})
	if err != nil {
		// Whoever does not know whether it was committed must not say that nothing was done.
		result = table.Broken(result, err, ctx.Err() != nil && !Uncertain(err))
	}
	report := Report{End: result.End, Err: result.Err}
	if b == nil {
		return report
	}
	b.report.End, b.report.Err = result.End, result.Err
	if report.End.Transaction != machine.Commit { // what was undone is not told as done
		report.Sessions, report.State, report.Differences = b.report.Sessions, b.report.State, b.report.Differences
		report.EpochFrom, report.EpochTo = b.report.State.Epoch, b.report.State.Epoch
		return report
	}
	return b.report
}

// Uncertain reports whether an error leaves open whether the transaction was committed: the reply to COMMIT is lost.
func Uncertain(err error) bool {
	var lost interface{ Uncertain() bool }
	return errors.As(err, &lost) && lost.Uncertain()
}

// bound is one finalize on its way.
type bound struct {
	tx     Tx
	o      Options
	report Report
}

// errBroken explains a table that the prover would not have let through.
var errBroken = errors.New("the restore table is broken: this is a mistake of the engine's own")

func (b *bound) step(ctx context.Context, s machine.Step) (answer string, err error) {
	state, r := &b.report.State, &b.report
	switch s.Run {
	case stepFirst:
		*state, err = b.tx.Look(ctx)
		r.EpochFrom, r.EpochTo = state.Epoch, state.Epoch
		if err == nil && b.compare() == answerSame {
			return answerSettled, nil
		}
		return answerOpen, err
	case stepGuard:
		r.Sessions, err = b.tx.Sessions(ctx, s.With[argRoles])
		if len(r.Sessions) > 0 {
			return answerConnected, err
		}
		return answerClear, err
	case stepLock:
		*state, err = b.tx.Lock(ctx)
		r.EpochFrom, r.EpochTo = state.Epoch, state.Epoch
		return answerLocked, err
	case stepCompare:
		return b.compare(), nil
	case stepCounter:
		return b.counter(ctx)
	case stepEpoch:
		r.EpochTo = b.o.Epoch
		return answerRotated, b.tx.SetEpoch(ctx, b.o.Epoch)
	case stepMove:
		moved, err := b.tx.Move(ctx, s.With.Text(argTable), s.With.Text(argColumn), state.Head())
		r.Moved = append(r.Moved, moved)
		return answerMoved, err
	case stepOwn:
		moved, err := b.tx.MoveDeclared(ctx, state.Head())
		r.Moved = append(r.Moved, moved...)
		return answerMoved, err
	case stepJobs:
		r.JobsRule = b.o.Jobs
		r.Jobs, err = b.tx.SettleJobs(ctx, b.o.Jobs, r.EpochTo)
		return answerSettled, err
	case stepIdentity:
		if b.o.Manifest != nil { // a move gives no new name
			return answerStored, b.tx.StoreIdentity(ctx, state.Current, "")
		}
		if b.o.Environment != state.Environment {
			r.Environment = b.o.Environment
		}
		return answerStored, b.tx.StoreIdentity(ctx, state.Current, b.o.Environment)
	case stepManifest:
		return b.manifest()
	case stepAudit:
		action := s.With.Text(argAction)
		r.Deed, err = b.tx.Audit(ctx, action, b.details(action))
		return answerAppended, err
	default:
		return "", fmt.Errorf("step %q is not one of a finalize: %w", s.Run, errBroken)
	}
}

// compare decides what the database is. Damage that a restore leaves is looked for also where the identity says
// that nothing happened: tables can be restored one by one.
func (b *bound) compare() string {
	return Decide(b.report.State, b.o)
}

// Decide is what compare_identity answers.
func Decide(s restore.State, o Options) string {
	verdict := restore.Match(s.Stored, s.Current)
	other := o.Environment != "" && s.Environment != "" && o.Environment != s.Environment
	flawed := len(s.Flaws()) > 0
	switch {
	case verdict == restore.Unreadable:
		return answerUnreadable
	case o.Manifest != nil && (verdict != restore.Same || flawed || s.Epoch != o.Manifest.SyncEpoch || o.copied(s) && len(o.differences(s)) > 0):
		return answerMoved
	case o.Manifest != nil:
		return answerSame
	case o.Force:
		return answerForced
	case verdict.Changed():
		return answerDiffers
	case other:
		return answerForeign
	case flawed:
		return answerUnsound
	default:
		return answerSame
	}
}

func (b *bound) counter(ctx context.Context) (string, error) {
	state := b.report.State
	b.report.Flaws = state.Flaws()
	if !state.CounterOff() {
		return answerRight, nil
	}
	return answerRight, b.tx.SetCounter(ctx, state.Head())
}

func (b *bound) manifest() (string, error) {
	if b.o.Manifest == nil {
		return "", fmt.Errorf("there is no manifest to compare: %w", errBroken)
	}
	if b.report.Differences = b.o.differences(b.report.State); len(b.report.Differences) > 0 {
		return answerDifferent, nil
	}
	return answerEqual, nil
}
