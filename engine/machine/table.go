// SPDX-License-Identifier: Apache-2.0

package machine

import "example.com/bothy/engine/problem"

// Table is a machine as its author wrote it: every word with its place, rows in the order of the file.
// Its grammar is sound, its meaning is not proven yet.
type Table struct {
	At       problem.Position // of the document
	Machine  Word             // which machine this is; the vocabulary has the same name
	Start    Word             // the state that runs first
	States   []State
	Anywhere []Arrow // what happens to any step: cancelled, error
	Ends     []EndRow
	Promises []PromiseRow
	// PromisesAt is the place of the key promises, or of the document when there is none.
	PromisesAt problem.Position
}

// Word is one word of a table and its place.
type Word struct {
	Text string
	At   problem.Position
}

// State is one row of steps: a state runs a step and the answer says where to go.
type State struct {
	Name      Word
	Run       Word // the step
	With      []Argument
	Answers   []Arrow
	AnswersAt problem.Position
}

// Argument is one argument that a table gives to a step: one word or a list of them.
type Argument struct {
	Name   Word
	Values []Word
	List   bool // written as a list
}

// Arrow is one answer and where it leads.
type Arrow struct {
	Answer Word
	Target Target
}

// Target is where an answer leads: to a state, or to an end (written `end NAME`).
type Target struct {
	Name string
	End  bool
	At   problem.Position
}

// EndRow is one row of ends.
type EndRow struct {
	At        problem.Position // of the name
	FailureAt problem.Position // of the failure's value; zero when there is none
	End       End
}

// PromiseRow is one row of promises.
type PromiseRow struct {
	At      problem.Position
	Promise Promise
	places  map[string][]problem.Position // key of the row -> the place of each of its words
}

// Promise is a statement about every path of a table. End selects the paths it speaks about, those that
// come to this end, or without it Transaction does, those whose end has it; the other fields say what
// holds on each of them. With both, the end is selected and its transaction is a statement like the
// others. A promise that speaks about no path is a problem: it could never be broken.
//
// A step is written `step`, whatever it answered, or `step.answer`; `step(argument=value)` is the step where the
// table gives it this argument, which tells apart states that run one step on different things. A step that broke off (an error, a
// cancelled context) may have done its work or not: it counts against NeverPasses and not for Passes.
type Promise struct {
	Transaction Transaction
	End         string

	// Passes are steps that every path passes.
	Passes []string
	// InOrder makes Passes the whole sequence: the path passes each of them exactly as often as it is
	// listed and in this order, with those answers; steps that are not listed may come in between.
	InOrder          bool
	NeverPasses      []string // steps
	PassesState      []string // states
	NeverPassesState []string // states

	// What the end itself says. Zero is no statement.
	Next    Next
	Edge    Edge
	Failure string
	Log     Level

	// Why is what goes wrong for the user when a table breaks the promise, as the end of a sentence: "events
	// would be lost". Only the program says it; a promise of the file alone has none.
	Why string
}

// Vocabulary is what a table may say: the steps that the program behind it has, the ends and the failures
// that it can tell, and what every such table must promise.
type Vocabulary struct {
	Machine  string
	Steps    map[string]StepKind // by name
	Failures []string
	// Ends closes the set of ends, since metrics and alerts name them and each has its promises: a table with
	// an end of another name could come there past all of them. Nil leaves the names to the table.
	Ends []string
	// Promises are proven whether or not the file states them, and the file must state them: what a
	// table holds to is read in the table, and cannot be edited away there.
	Promises []Promise
}

// StepKind is what a step declares about itself.
type StepKind struct {
	Does    string                  // what it does, as the end of a sentence: "locks the consumer's cursor row"
	Without string                  // what goes wrong on a path that should run it and does not: "its jobs would be lost"; may be empty
	Answers []Answer                // all of them; never cancelled or error, which every step has
	With    map[string]ArgumentKind // the arguments it takes; nil for none
}

// Answer is one word that a step may answer, and what it means: "this round owns the consumer".
type Answer struct{ Name, Means string }

// ArgumentKind is what a step declares about one argument.
type ArgumentKind struct {
	Required bool
	List     bool     // a list of words is accepted, not only one word
	OneOf    []string // the words that are accepted; nil for any
}

// answers are the words of a step, in the order in which it declares them.
func (k StepKind) answers() []string {
	names := make([]string, len(k.Answers))
	for i, a := range k.Answers {
		names[i] = a.Name
	}
	return names
}

// means is what an answer of the step says to a person, or "".
func (k StepKind) means(answer string) string {
	for _, a := range k.Answers {
		if a.Name == answer {
			return a.Means
		}
	}
	return ""
}
