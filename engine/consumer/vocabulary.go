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

	stepQuarantine = "quarantine_event"
)

// The answers of plan_round and of the steps that have only one.
const (
	answerContiguous = "contiguous" // the events follow the cursor
	answerExpired    = "expired"    // retention removed events before this consumer read them
	answerHole       = "hole"       // the log has a hole
	answerDecided    = "decided"
	answerInserted   = "inserted"
	answerAdvanced   = "advanced"

	answerRefused     = "refused" // the one event of the round has failed alone before, and failed again
	answerQuarantined = "quarantined"
)

// The failures that an end can declare: the error.type of its log record.
const (
	FailureGap   = "consumer_gap"   // the log has a hole: the cursor never passes it
	FailureAhead = "consumer_ahead" // the cursor is above the head: two histories were mixed
	FailureError = "error"          // a step broke: the cause says which
)

// Vocabulary is what a round table may say, and what every such table must keep. The promises here are
// proven whatever the file says. The words are for people: they explain a broken promise and a diagram.
func Vocabulary() machine.Vocabulary {
	return machine.Vocabulary{
		Machine:  "round",
		Steps:    steps(),
		Failures: []string{FailureGap, FailureAhead, FailureError},
		Ends:     []string{"processed", "lost", "quarantined", "idle", "locked", "gap", "ahead", "unfinalized", "stopped", "failed"},
		Promises: promises(),
	}
}

func steps() map[string]machine.StepKind {
	return map[string]machine.StepKind{
		stepLock: {
			Does:    "locks the consumer's cursor row",
			Without: "two workers could process the same events, and every job would be doubled",
			Answers: []machine.Answer{
				{Name: string(round.Held), Means: "this round owns the consumer"},
				{Name: string(round.Taken), Means: "another worker owns the consumer"},
				{Name: string(round.Quiet), Means: "the consumer has seen every event, so nothing was locked"},
				{Name: string(round.Missing), Means: "the consumer has no cursor row"},
			},
		},
		stepRead: {
			Does:    "reads the cursor, the head of the log and the events between them",
			Without: "the round would work on no events or on those of another round",
			Answers: []machine.Answer{
				{Name: string(round.Some), Means: "there are events after the cursor"},
				{Name: string(round.None), Means: "the consumer has seen every event"},
				{Name: string(round.Vanished), Means: "events were numbered after the cursor, and the log holds none of them"},
				{Name: string(round.Ahead), Means: "the cursor is above the head, so the database went back in time"},
				{Name: string(round.Unfinalized), Means: "the database was restored or promoted, and that is not finalized yet"},
			},
		},
		stepPlan: {
			Does:    "decides how far the cursor may move",
			Without: "the cursor could pass a hole in the log, and the jobs of the events in it would be lost",
			Answers: []machine.Answer{
				{Name: answerContiguous, Means: "the events follow the cursor number by number"},
				{Name: answerExpired, Means: "retention removed events before this consumer saw them"},
				{Name: answerHole, Means: "a number is missing in the log"},
			},
		},
		stepDecide: {
			Does:    "applies the recipient rule to the events",
			Without: "nobody would have decided who gets a job, and jobs would be lost",
			Answers: []machine.Answer{
				{Name: answerDecided, Means: "it is known who gets a job"},
				{Name: answerRefused, Means: "the rule failed on the one event of a round that may set it aside"},
			},
		},
		stepQuarantine: {
			Does:    "sets the event aside, with the class of its error",
			Without: "the cursor would pass an event whose jobs were never inserted, and nobody could find it again",
			Answers: []machine.Answer{{Name: answerQuarantined, Means: "the event is set aside in the transaction"}},
		},
		stepInsert: {
			Does:    "inserts the jobs",
			Without: "the cursor would pass events whose jobs were never inserted, and these jobs would be lost",
			Answers: []machine.Answer{{Name: answerInserted, Means: "the jobs are in the transaction"}},
		},
		stepAdvance: {
			Does:    "moves the cursor behind the last event of the round",
			Without: "the next round would read the same events again, and their jobs would be doubled",
			Answers: []machine.Answer{{Name: answerAdvanced, Means: "the new cursor is in the transaction"}},
		},
	}
}
