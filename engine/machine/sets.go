// SPDX-License-Identifier: Apache-2.0

package machine

// Transaction says what becomes of the transaction that the steps ran in. The zero value is none.
type Transaction string

// The transactions. Every end names one, so a path never ends with its transaction open.
const (
	Commit   Transaction = "commit"
	Rollback Transaction = "rollback"
)

// Next says what the runner does after an end. The zero value is none.
type Next string

// The next moves.
const (
	Wait          Next = "wait"            // for a wake or the poll
	AgainWhenFull Next = "again_when_full" // at once after a full batch, else wait
	Stop          Next = "stop"            // no further run
)

// Edge says what an end without a failure does to the failing state, of which only the edges are
// logged. The zero value is none.
type Edge string

// The edges. An end with a failure has Settle and enters the failing state: the failure decides.
const (
	Settle    Edge = "settle"    // the default: the end is good and clears the failing state
	Unchanged Edge = "unchanged" // neither an incident nor a recovery
)

// Level is how loud an end is logged. The zero value is none.
type Level string

// The levels, from loudest to quietest.
const (
	LevelError Level = "error"
	LevelWarn  Level = "warn"
	LevelInfo  Level = "info"
	LevelDebug Level = "debug"
)

// The closed sets as an author may write them, in the order in which a fix lists them.
var (
	transactions = []string{string(Commit), string(Rollback)}
	nexts        = []string{string(Wait), string(AgainWhenFull), string(Stop)}
	edges        = []string{string(Settle), string(Unchanged)}
	levels       = []string{string(LevelError), string(LevelWarn), string(LevelInfo), string(LevelDebug)}
)

// The two answers that no step declares: what can happen to any of them.
const (
	answerCancelled = "cancelled" // its context was cancelled
	answerError     = "error"     // it returned an error or panicked
)

// End is one way in which a run ends, and all that its caller does about it.
type End struct {
	Name        string
	Transaction Transaction
	Next        Next
	Edge        Edge
	Failure     string // the error.type of a failed run; empty when the end is no failure
	Log         *Log   // a record at every such end; nil for none
}

// Log is the record of an end: a constant message, so that it can be searched for and alerted on.
type Log struct {
	Level   Level
	Message string
}
