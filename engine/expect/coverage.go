// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"fmt"
	"strings"

	"example.com/bothy/engine/round"
)

// Coverage is what the tests of some files touch. A test touches a consumer that it looks at when an event
// reaches the rule, and a pattern of types when an event matches it.
type Coverage struct {
	Consumers, Patterns               int // declared
	TestedConsumers, TestedPatterns   int
	UntestedConsumers, AbsentHandlers []string
	UntestedPatterns                  []string // consumer: pattern, of consumers that are tested
}

// Whole reports whether nothing is untested.
func (c Coverage) Whole() bool {
	return c.TestedConsumers == c.Consumers && c.TestedPatterns == c.Patterns
}

// String is the coverage in one line.
func (c Coverage) String() string {
	line := fmt.Sprintf("coverage: %d of %s, %d of %s", c.TestedConsumers, counting(c.Consumers, "consumer"),
		c.TestedPatterns, counting(c.Patterns, "type pattern"))
	var untested []string
	untested = append(untested, c.UntestedConsumers...)
	for _, name := range c.AbsentHandlers {
		untested = append(untested, name+" (its handler is not in this program)")
	}
	untested = append(untested, c.UntestedPatterns...)
	if len(untested) > 0 {
		line += "; not tested: " + strings.Join(untested, "; ")
	}
	return line
}

// Cover looks at what the tests of files touch. It runs nothing.
func Cover(subject Subject, files []*File) Coverage {
	reached, matched := map[string]bool{}, map[string]bool{}
	pattern := func(c round.Consumer, glob string) string { return c.Name + ": " + glob }
	for _, f := range files {
		for i := range f.tests {
			t := &f.tests[i]
			for _, c := range t.consumers {
				selected := round.Select(t.events, c.Types)
				reached[c.Name] = reached[c.Name] || len(selected) > 0
				for _, glob := range c.Types {
					matched[pattern(c, glob)] = matched[pattern(c, glob)] || len(round.Select(selected, round.Types{glob})) > 0
				}
			}
		}
	}
	c := Coverage{Consumers: len(subject.Consumers)}
	for _, consumer := range subject.Consumers {
		c.Patterns += len(consumer.Types)
		switch {
		case reached[consumer.Name]:
			c.TestedConsumers++
			for _, glob := range consumer.Types {
				if matched[pattern(consumer, glob)] {
					c.TestedPatterns++
				} else {
					c.UntestedPatterns = append(c.UntestedPatterns, pattern(consumer, glob))
				}
			}
		case !subject.here(consumer):
			c.AbsentHandlers = append(c.AbsentHandlers, consumer.Name)
		default:
			c.UntestedConsumers = append(c.UntestedConsumers, consumer.Name)
		}
	}
	return c
}
