// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"regexp"
	"slices"
)

// stepWord is how a promise speaks of a step: its name, where it matters one argument as the table gives it, and
// where it matters what it answered.
var stepWord = regexp.MustCompile(`^([a-z][a-z0-9_]{0,62})(?:\(([a-z][a-z0-9_]{0,62})=([^()\s,]{1,200})\))?(?:\.([a-z][a-z0-9_]{0,62}))?$`)

// passing is a word of a promise: `step`, `step(argument=value)`, `step.answer` or `step(argument=value).answer`.
type passing struct{ step, argument, value, answer string }

// readPassing reads a word of a promise.
func readPassing(word string) (passing, bool) {
	parts := stepWord.FindStringSubmatch(word)
	if parts == nil {
		return passing{}, false
	}
	return passing{parts[1], parts[2], parts[3], parts[4]}, true
}

// readPassings reads words that were checked before.
func readPassings(words []string) []passing {
	list := make([]passing, len(words))
	for i, word := range words {
		list[i], _ = readPassing(word)
	}
	return list
}

// runBy says that the state runs this step, with this argument when one is named: a list has it when it holds
// the value.
func (p passing) runBy(s *State) bool {
	if s.Run.Text != p.step {
		return false
	}
	return p.argument == "" || slices.ContainsFunc(s.With, func(a Argument) bool {
		return a.Name.Text == p.argument && slices.ContainsFunc(a.Values, func(v Word) bool { return v.Text == p.value })
	})
}

// is says that the state runs this step and that it answered so.
func (p passing) is(s *State, answer string) bool {
	return p.runBy(s) && (p.answer == "" || p.answer == answer)
}
