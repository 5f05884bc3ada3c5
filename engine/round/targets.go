// SPDX-License-Identifier: Apache-2.0

package round

import (
	"cmp"
	"slices"
	"strings"
)

// Rule is how a consumer decides who an event is for. Exactly one kind holds.
type Rule struct {
	Kind    RuleKind
	Field   string   // Field: the column of the event, a text or an array of text
	List    []string // List: the same recipients for every event
	Query   string   // Query: a SELECT of (seq, recipient) over the relation batch
	Handler string   // Handler: the name a program registered a Go function under
}

// RuleKind is the kind of a recipient rule. The zero value is none of them.
type RuleKind int

// The kinds of recipient rules.
const (
	RuleNone    RuleKind = iota + 1 // one job per event, with an empty recipient
	RuleField                       // one job per element of a column of the event
	RuleList                        // one job per name of a fixed list
	RuleQuery                       // set-based: one statement decides a whole batch
	RuleHandler                     // a Go function inside the round's transaction
)

// Columns that a field rule can name, in the order that messages list them.
var Columns = []string{"audience", "resource", "resource_id", "type"}

// Job is what every target of a consumer becomes.
type Job struct {
	Kind        string // River's job kind
	Queue       string // River's queue
	MaxAttempts int    // from 1
	Priority    int    // 1 (first) to 4
}

// Consumer is one declared consumer, as the core sees it.
type Consumer struct {
	Name    string
	Batch   int   // how many events one round reads at most, from 1
	MaxJobs int   // a round takes no further event once it has this many targets, from 1
	Types   Types // which events concern it; empty means all
	Rule    Rule
	Job     Job

	// QuarantineAfter is how many rounds in a row may fail on one event before it is set aside; 0: it never is,
	// and the consumer stands still.
	QuarantineAfter int
	// Suspect is the event that this round may set aside. Of nearly every round it is the zero value: none.
	Suspect Suspect
}

// Suspect is an event that made rounds fail, the last of them alone.
type Suspect struct {
	Seq      int64
	Attempts int // rounds in a row that it failed, with the one that sets it aside
}

// Refusal is an event that a consumer sets aside, and why, in words that hold nothing of the event.
type Refusal struct {
	Seq       int64
	ErrorType string // from the closed set of error.type
	Message   string
	Attempts  int
}

// Types are globs on the type of an event; a star stands for any run of characters, dots included. No
// globs match every type.
type Types []string

// Match reports whether one of the globs matches.
func (t Types) Match(eventType string) bool {
	if len(t) == 0 {
		return true
	}
	return slices.ContainsFunc(t, func(glob string) bool { return match(glob, eventType) })
}

// match compares from both ends inwards and then places each middle piece as far left as it fits, so it
// takes no longer than glob times text however many stars there are.
func match(glob, text string) bool {
	pieces := strings.Split(glob, "*")
	if len(pieces) == 1 {
		return glob == text
	}
	first, last := pieces[0], pieces[len(pieces)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, piece := range pieces[1 : len(pieces)-1] {
		at := strings.Index(text, piece)
		if at < 0 {
			return false
		}
		text = text[at+len(piece):]
	}
	return true
}

// Select keeps the events that concern a consumer. It runs after the plan: it narrows what a rule sees,
// never what the round reads, so a hole among events of other types is still a hole.
func Select(events []Event, types Types) []Event {
	if len(types) == 0 {
		return events
	}
	kept := make([]Event, 0, len(events))
	for _, e := range events {
		if types.Match(e.Type) {
			kept = append(kept, e)
		}
	}
	return kept
}

// Decision is the outcome of a recipient rule over the events of one round.
type Decision struct {
	Targets []Target // de-duplicated, ordered by number and recipient
	Through int64    // the last event that was decided
	Cut     bool     // Through was set by the limit of jobs: events of the batch are left
}

// Decide applies a rule that needs no database to the events a consumer selected, until limit targets
// are reached; the event that reaches it is still taken whole. through is the last number of the plan.
func Decide(rule Rule, events []Event, limit int, through int64) Decision {
	decision := Decision{Through: through}
	for i, e := range events {
		decision.Targets = appendUnique(decision.Targets, e.Seq, rule.recipients(e))
		if len(decision.Targets) >= limit && i+1 < len(events) {
			decision.Through, decision.Cut = e.Seq, true
			break
		}
	}
	return decision
}

// recipients are those of one event under a rule that needs no database.
func (r Rule) recipients(e Event) []string {
	switch r.Kind {
	case RuleList:
		return r.List
	case RuleField:
		return e.field(r.Field)
	case RuleNone:
		return []string{""}
	case RuleQuery, RuleHandler:
		return nil // decided by the store, inside the transaction
	default:
		return nil
	}
}

// field is a column as recipients. An empty text is nobody: an event without a resource has no one to
// tell under that rule.
func (e Event) field(name string) []string {
	text := ""
	switch name {
	case "audience":
		return e.Audience
	case "type":
		text = e.Type
	case "resource":
		text = e.Resource
	case "resource_id":
		text = e.ResourceID
	}
	if text == "" {
		return nil
	}
	return []string{text}
}

// appendUnique adds the recipients of one event, sorted and each once.
func appendUnique(targets []Target, seq int64, recipients []string) []Target {
	from := len(targets)
	for _, r := range recipients {
		targets = append(targets, Target{Seq: seq, Recipient: r})
	}
	added := Unique(targets[from:])
	return targets[:from+len(added)]
}

// Unique sorts targets by number and recipient and drops repetitions, in place: a set-based rule may give
// the same target twice, and a target becomes one job.
func Unique(targets []Target) []Target {
	slices.SortFunc(targets, func(a, b Target) int {
		if c := cmp.Compare(a.Seq, b.Seq); c != 0 {
			return c
		}
		return strings.Compare(a.Recipient, b.Recipient)
	})
	return slices.Compact(targets)
}
