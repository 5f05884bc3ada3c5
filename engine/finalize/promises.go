// SPDX-License-Identifier: Apache-2.0

package finalize

import (
	"fmt"

	"example.com/bothy/engine/machine"
)

// What breaking a promise costs the user.
const (
	costHistory   = "two histories would be mixed: clients and workers would skip events, or do work twice, without a word"
	costColumn    = "the position of a reader would be written where it is not read"
	costMoved     = "a database that was only moved would lose its epoch or its place in the log, or one that lost events would pass as moved"
	costWatched   = "a program that is still connected would see half of the change"
	costAlready   = "a second run would be told as done, or a database that needs a new epoch be told as finalized"
	costRefused   = "the command would wait for locks that connected programs hold, or be told as another refusal"
	costDifferent = "a database that differs from its manifest would be changed, or told as something else"
	costReason    = "the reason of a refusal would be told as another one"
	costFailed    = "a refusal would be told as a broken step, and what is to be done about it be lost"
)

// cursorTable is one table of the engine's own whose cursors a new epoch moves.
type cursorTable struct{ table, column string }

// cursorTables are all of them, in the order in which they are moved. Whoever adds one adds its row to the table of
// steps: the promises below are made of this list.
var cursorTables = []cursorTable{
	{"event_consumer_cursors", "last_seq"},
	{"agent_consumer_cursors", "acked_seq"},
	{"webhook_subscriptions", "last_delivered_seq"},
}

var tables, columns = split(cursorTables)

func split(all []cursorTable) (tables, columns []string) {
	for _, c := range all {
		tables, columns = append(tables, c.table), append(columns, c.column)
	}
	return tables, columns
}

// passing is a step with one argument, as a promise names it.
func passing(step, argument, value string) string {
	return fmt.Sprintf("%s(%s=%s)", step, argument, value)
}

// promises are what every restore table keeps, whatever else it does. The file states them too.
func promises() []machine.Promise {
	whole := []string{stepGuard + "." + answerClear, stepLock, stepCompare, stepCounter, stepEpoch}
	var moves []string
	for _, c := range cursorTables {
		whole = append(whole, passing(stepMove, argTable, c.table))
		moves = append(moves, passing(stepMove, argColumn, c.column))
	}
	whole = append(whole, stepOwn, stepJobs, stepIdentity, passing(stepAudit, argAction, actionFinalized))
	is := func(answer string) string { return stepCompare + "." + answer }
	return []machine.Promise{
		{
			End: EndFinalized, Transaction: machine.Commit, Passes: whole, InOrder: true,
			NeverPasses: []string{
				is(answerSame), is(answerMoved), is(answerUnreadable), is(answerForeign), stepManifest, passing(stepAudit, argAction, actionRelocated),
			},
			Next: machine.Stop, Edge: machine.Settle, Why: costHistory,
		},
		{End: EndFinalized, Passes: moves, InOrder: true, Why: costColumn},
		{
			End: EndRelocated, Transaction: machine.Commit, InOrder: true,
			Passes: []string{
				stepGuard + "." + answerClear, stepLock, is(answerMoved), stepManifest + "." + answerEqual, stepIdentity, passing(stepAudit, argAction, actionRelocated),
			},
			NeverPasses: []string{stepCounter, stepEpoch, stepMove, stepOwn, stepJobs, passing(stepAudit, argAction, actionFinalized)},
			Next:        machine.Stop, Edge: machine.Settle, Why: costMoved,
		},
		{Transaction: machine.Commit, Passes: []string{passing(stepGuard, argRoles, roleApp), passing(stepGuard, argRoles, roleProducers)}, Why: costWatched},
		{End: EndAlready, Transaction: machine.Rollback, Passes: []string{stepFirst + "." + answerSettled}, Next: machine.Stop, Edge: machine.Settle, Why: costAlready},
		{End: EndOvertaken, Transaction: machine.Rollback, Passes: []string{stepLock, is(answerSame)}, Next: machine.Stop, Edge: machine.Settle, Why: costAlready},
		{
			End: EndRefused, Transaction: machine.Rollback, Passes: []string{stepGuard + "." + answerConnected}, NeverPasses: []string{stepLock},
			Next: machine.Stop, Failure: FailureSessions, Why: costRefused,
		},
		{
			End: EndDifferent, Transaction: machine.Rollback, Passes: []string{stepLock, is(answerMoved), stepManifest + "." + answerDifferent},
			NeverPasses: []string{stepEpoch, stepMove, stepIdentity, stepAudit},
			Next:        machine.Stop, Failure: FailureManifest, Why: costDifferent,
		},
		{End: EndUnreadable, Transaction: machine.Rollback, Passes: []string{stepLock, is(answerUnreadable)}, Next: machine.Stop, Failure: FailureUnreadable, Why: costReason},
		{End: EndForeign, Transaction: machine.Rollback, Passes: []string{stepLock, is(answerForeign)}, Next: machine.Stop, Failure: FailureEnvironment, Why: costReason},
		{End: EndInterrupted, Transaction: machine.Rollback, Next: machine.Stop, Edge: machine.Unchanged, Why: costFailed},
		{
			End: EndFailed, Transaction: machine.Rollback,
			NeverPasses: []string{stepFirst + "." + answerSettled, stepGuard + "." + answerConnected, stepManifest + "." + answerDifferent, is(answerSame), is(answerUnreadable), is(answerForeign)},
			Next:        machine.Stop, Failure: FailureError, Why: costFailed,
		},
	}
}
