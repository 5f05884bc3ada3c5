// SPDX-License-Identifier: Apache-2.0

// Package finalize runs the restore table: it owns the steps that definitions/restore.yaml names, what every such
// table must promise, and what the run of one tells.
//
//	State --look_first--> settled | open
//	State --compare_identity--> same | differs | unsound | forced | moved | unreadable | foreign
//	differs:  repair_counter -> rotate_epoch -> move_cursors ... -> settle_restored_jobs -> store_identity -> append_audit
//	moved:    compare_manifest -> store_identity -> append_audit
//
// The steps talk to a transaction of the database behind an interface; no statement is theirs, and neither is the
// commit: the caller ends the transaction as the end of the run says.
package finalize

import "example.com/bothy/engine/machine"

// The steps.
const (
	stepFirst    = "look_first"
	stepGuard    = "refuse_sessions"
	stepLock     = "lock_instance"
	stepCompare  = "compare_identity"
	stepCounter  = "repair_counter"
	stepEpoch    = "rotate_epoch"
	stepMove     = "move_cursors"
	stepOwn      = "move_declared_cursors"
	stepJobs     = "settle_restored_jobs"
	stepIdentity = "store_identity"
	stepManifest = "compare_manifest"
	stepAudit    = "append_audit"
)

// The answers.
const (
	answerOpen       = "open"
	answerClear      = "clear"
	answerConnected  = "connected"
	answerLocked     = "locked"
	answerSame       = "same"
	answerDiffers    = "differs"
	answerUnsound    = "unsound"
	answerForced     = "forced"
	answerMoved      = "moved"
	answerUnreadable = "unreadable"
	answerForeign    = "foreign"
	answerRight      = "right"
	answerRotated    = "rotated"
	answerSettled    = "settled"
	answerStored     = "stored"
	answerEqual      = "equal"
	answerDifferent  = "different"
	answerAppended   = "appended"
)

// The ends.
const (
	EndFinalized   = "finalized"   // a new epoch has begun at the head
	EndRelocated   = "relocated"   // the identity is stored, epoch and cursors are kept
	EndAlready     = "already"     // there was nothing to do
	EndOvertaken   = "overtaken"   // there was nothing to do any more
	EndRefused     = "refused"     // other sessions are connected
	EndDifferent   = "different"   // the database is not where the manifest says
	EndUnreadable  = "unreadable"  // the identity cannot be read
	EndForeign     = "foreign"     // the database is that of another environment
	EndInterrupted = "interrupted" // the command was stopped
	EndFailed      = "failed"      // a step or the commit broke
)

// The failures that an end can declare.
const (
	FailureSessions    = "sessions_connected"
	FailureManifest    = "manifest_differs"
	FailureUnreadable  = "identity_unreadable"
	FailureEnvironment = "other_environment"
	FailureError       = "error"
)

// The words of the arguments.
const (
	argRoles  = "roles"
	argTable  = "table"
	argColumn = "column"
	argTo     = "to"
	argAction = "action"

	toHead          = "head"
	roleApp         = "app"
	roleProducers   = "producers"
	actionFinalized = "instance.restore_finalized"
	actionRelocated = "instance.relocated"
)

// Vocabulary is what a restore table may say, and what every such table must keep.
func Vocabulary() machine.Vocabulary {
	return machine.Vocabulary{
		Machine:  "restore_finalize",
		Steps:    steps(),
		Failures: []string{FailureSessions, FailureManifest, FailureUnreadable, FailureEnvironment, FailureError},
		Ends:     []string{EndFinalized, EndRelocated, EndAlready, EndOvertaken, EndRefused, EndDifferent, EndUnreadable, EndForeign, EndInterrupted, EndFailed},
		Promises: promises(),
	}
}

func steps() map[string]machine.StepKind {
	to := machine.ArgumentKind{Required: true, OneOf: []string{toHead}}
	return map[string]machine.StepKind{
		stepFirst: {
			Does:    "looks, without a lock, whether there is anything to do",
			Without: "a database that needs nothing would be refused because of those who work on it",
			Answers: []machine.Answer{
				{Name: answerSettled, Means: "the database is the one whose history the cursors follow, all fits together, and nothing else is wanted"},
				{Name: answerOpen, Means: "there is something to do, or to refuse"},
			},
		},
		stepGuard: {
			Does:    "looks for sessions of the engine and of producers, and keeps engines out until the transaction ends",
			Without: "a program that still runs would see half of the change, or append to a history that is being left",
			With:    map[string]machine.ArgumentKind{argRoles: {Required: true, List: true, OneOf: []string{roleApp, roleProducers}}},
			Answers: []machine.Answer{
				{Name: answerClear, Means: "nobody else is connected"},
				{Name: answerConnected, Means: "somebody is: it says who"},
			},
		},
		stepLock: {
			Does:    "locks the instance row, then the counter of the log, and then reads where everything stands",
			Without: "two of these commands, or an append, could change what the others had read",
			Answers: []machine.Answer{{Name: answerLocked, Means: "nobody else can change the epoch or the head"}},
		},
		stepCompare: {
			Does:    "compares the identity of the database with the stored one, and the counter and the cursors with the log",
			Without: "a database that nobody restored would lose its place in the log",
			Answers: []machine.Answer{
				{Name: answerSame, Means: "the database is the one whose history the cursors follow, and all fits together"},
				{Name: answerDiffers, Means: "the database was restored or promoted"},
				{Name: answerUnsound, Means: "counter, log and cursors do not fit together: parts were restored from different moments"},
				{Name: answerForced, Means: "a new epoch is wanted whatever the database is"},
				{Name: answerMoved, Means: "the database is another one and a manifest is to show that nothing is missing"},
				{Name: answerUnreadable, Means: "the identity cannot be read, so nothing can be stored"},
				{Name: answerForeign, Means: "the database is the same one, and that of another environment than the file says"},
			},
		},
		stepCounter: {
			Does:    "sets a counter that is missing, or behind its log, to the highest number",
			Without: "appends would fail on numbers that are taken",
			Answers: []machine.Answer{{Name: answerRight, Means: "the counter is at or above every number of the log"}},
		},
		stepEpoch: {
			Does:    "gives the installation a new random epoch",
			Without: "events of two histories would carry the same numbers, and nobody could tell them apart",
			Answers: []machine.Answer{{Name: answerRotated, Means: "the new epoch is in the transaction"}},
		},
		stepMove: {
			Does:    "moves every cursor of a table of the engine to the head",
			Without: "a cursor of the old history would pass, or repeat, events of the new one",
			With: map[string]machine.ArgumentKind{
				argTable:  {Required: true, OneOf: tables},
				argColumn: {Required: true, OneOf: columns},
				argTo:     to,
			},
			Answers: []machine.Answer{{Name: answerMoved, Means: "the cursors are at the head"}},
		},
		stepOwn: {
			Does:    "moves the cursors that restore.cursors of consumers.yaml declares to the head",
			Without: "a cursor of the user's own would pass, or repeat, events of the new history",
			With:    map[string]machine.ArgumentKind{argTo: to},
			Answers: []machine.Answer{{Name: answerMoved, Means: "the declared cursors are at the head"}},
		},
		stepJobs: {
			Does:    "settles the restored jobs of earlier epochs that are not finished, as restore.jobs says",
			Without: "work that was done before the restore would be done again",
			Answers: []machine.Answer{{Name: answerSettled, Means: "no restored job runs that should not"}},
		},
		stepIdentity: {
			Does:    "stores the identity of this database, and its environment",
			Without: "every engine would go on waiting for a finalize",
			Answers: []machine.Answer{{Name: answerStored, Means: "the database is now the one whose history the cursors follow"}},
		},
		stepManifest: {
			Does:    "compares the database with the manifest of its final backup",
			Without: "a database that lost events would pass as one that was only moved",
			Answers: []machine.Answer{
				{Name: answerEqual, Means: "nothing is missing and nothing was added"},
				{Name: answerDifferent, Means: "a field differs: it says which"},
			},
		},
		stepAudit: {
			Does:    "appends to the audit what was done",
			Without: "nobody could say later where a history ended",
			With:    map[string]machine.ArgumentKind{argAction: {Required: true, OneOf: []string{actionFinalized, actionRelocated}}},
			Answers: []machine.Answer{{Name: answerAppended, Means: "the deed is in the transaction"}},
		},
	}
}
