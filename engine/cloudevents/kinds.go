// SPDX-License-Identifier: Apache-2.0

package cloudevents

import "example.com/bothy/engine/problem"

// Kinds are the codes that a file of events can be refused with.
func Kinds() []problem.Kind {
	return []problem.Kind{
		{Code: "bad-attribute", Severity: problem.Error, Means: "An attribute of an event has a value that CloudEvents or the event log does not take."},
		{Code: "bad-json", Severity: problem.Error, Means: "The text is not JSON from this place on."},
		{Code: "bad-number", Severity: problem.Error, Means: "A number has more digits than the event log can store."},
		{Code: "duplicate-attribute", Severity: problem.Error, Means: "An attribute stands twice in one event, and readers differ about which of the two counts."},
		{Code: "lone-surrogate", Severity: problem.Error, Means: "A text holds half of a surrogate pair, which is no character and cannot be stored."},
		{Code: "missing-attribute", Severity: problem.Error, Means: "An event lacks an attribute that every CloudEvent has."},
		{Code: "nul-escape", Severity: problem.Error, Means: "A text holds the character U+0000, which PostgreSQL cannot store."},
		{Code: "too-deep", Severity: problem.Error, Means: "A value is nested deeper than what is read; the bound keeps memory and time small."},
	}
}
