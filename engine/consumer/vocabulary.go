// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/round"
)

// The steps of a round. The table names them; the functions of steps.go are what they do.
const (
	stepLock    = "lock_cursor"
	stepRead    = "read_events"
	stepPlan    = "plan_round"
	stepDecide  = "decide_recipients"
	stepInsert  = "insert_jobs"
	stepAdvance = "advance_cursor"
)

// The answers of plan_round and of the steps that have only one.
const (
	answerContiguous = "contiguous" // the events follow the cursor
	answerExpired    = "expired"    // retention removed events before this consumer read them
	answerHole       = "hole"       // the log has a hole
	answerDecided    = "decided"
	answerInserted   = "inserted"
	answerAdvanced   = "advanced"
)

// The failures that an end can declare: the error.type of its log record.
const (
	FailureGap   = "consumer_gap"   // the log has a hole: the cursor never passes it
	FailureAhead = "consumer_ahead" // the cursor is above the head: two histories were mixed
	FailureError = "error"          // a step broke: the cause says which
)

// Vocabulary is what a round table may say, and what every such table must keep. The promises here are
// proven whatever the file says.
func Vocabulary() machine.Vocabulary {
	steps := map[string]machine.StepKind{
		stepLock:    {Answers: []string{string(round.Held), string(round.Taken), string(round.Missing)}},
		stepRead:    {Answers: []string{string(round.Some), string(round.None), string(round.Vanished), string(round.Ahead), string(round.Unfinalized)}},
		stepPlan:    {Answers: []string{answerContiguous, answerExpired, answerHole}},
		stepDecide:  {Answers: []string{answerDecided}},
		stepInsert:  {Answers: []string{answerInserted}},
		stepAdvance: {Answers: []string{answerAdvanced}},
	}
	return machine.Vocabulary{
		Machine:  "round",
		Steps:    steps,
		Failures: []string{FailureGap, FailureAhead, FailureError},
		Promises: promises(),
	}
}
