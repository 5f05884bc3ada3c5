// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/problem"
)

// Kinds are all problems that the engine reports, one for each code, by code. Rooms that share a code mean much the
// same with it; where they say it in other words, the kind says both.
func Kinds() []problem.Kind {
	at := map[string]int{}
	var all []problem.Kind
	for _, room := range []struct {
		speaksOf string
		kinds    []problem.Kind
	}{
		{"a configuration", config.Kinds()},
		{"a table", machine.Kinds()},
		{"an event", eventKinds},
		{"a database", DatabaseKinds()},
	} {
		for _, k := range room.kinds {
			i, known := at[k.Code]
			switch {
			case !known:
				at[k.Code] = len(all)
				all = append(all, k)
			case all[i].Means != k.Means:
				all[i].Means += " In " + room.speaksOf + ": " + k.Means
			}
		}
	}
	slices.SortFunc(all, func(a, b problem.Kind) int { return cmp.Compare(a.Code, b.Code) })
	return all
}

// eventKinds are the codes of engine/cloudevents.
var eventKinds = []problem.Kind{
	{Code: "bad-attribute", Severity: problem.Error, Means: "An attribute of an event has a value that CloudEvents or the event log does not take."},
	{Code: "bad-json", Severity: problem.Error, Means: "The text is not JSON from this place on."},
	{Code: "bad-number", Severity: problem.Error, Means: "A number has more digits than the event log can store."},
	{Code: "duplicate-attribute", Severity: problem.Error, Means: "An attribute stands twice in one event, and readers differ about which of the two counts."},
	{Code: "lone-surrogate", Severity: problem.Error, Means: "A text holds half of a surrogate pair, which is no character and cannot be stored."},
	{Code: "missing-attribute", Severity: problem.Error, Means: "An event lacks an attribute that every CloudEvent has."},
	{Code: "nul-escape", Severity: problem.Error, Means: "A text holds the character U+0000, which PostgreSQL cannot store."},
	{Code: "too-deep", Severity: problem.Error, Means: "A value is nested deeper than what is read; the bound keeps memory and time small."},
}
