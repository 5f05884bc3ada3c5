// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"

	"example.com/bothy/engine/cloudevents"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/document"
	"example.com/bothy/engine/expect"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/problem"
)

// Kinds are all problems that the engine reports, one for each code, by code. Rooms that read the same grammar share
// codes: the first of them says what it means.
func Kinds() []problem.Kind {
	seen := map[string]bool{}
	var all []problem.Kind
	for _, room := range [][]problem.Kind{document.Kinds(), config.Kinds(), expect.Kinds(), machine.Kinds(), cloudevents.Kinds(), DatabaseKinds()} {
		for _, k := range room {
			if !seen[k.Code] {
				seen[k.Code] = true
				all = append(all, k)
			}
		}
	}
	slices.SortFunc(all, func(a, b problem.Kind) int { return cmp.Compare(a.Code, b.Code) })
	return all
}
