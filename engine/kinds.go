// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"

	"example.com/bothy/engine/cloudevents"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/expect"
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
		{"a test file", expect.Kinds()},
		{"a table", machine.Kinds()},
		{"an event", cloudevents.Kinds()},
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
