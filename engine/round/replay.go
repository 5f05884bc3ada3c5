// SPDX-License-Identifier: Apache-2.0

package round

import "fmt"

// Replay passes events through as many rounds of a consumer as they take, and gives all targets. decide is
// called once per round, with the events that concern the consumer: Decide for a rule that needs no database,
// else the store. The events are in the order of their numbers.
func Replay(c Consumer, events []Event, decide func(selected []Event, limit int, through int64) (Decision, error)) ([]Target, error) {
	var targets []Target
	for len(events) > 0 {
		batch := events[:min(max(c.Batch, 1), len(events))]
		decision, err := decide(Select(batch, c.Types), c.MaxJobs, batch[len(batch)-1].Seq)
		if err != nil {
			return nil, err
		}
		targets = append(targets, decision.Targets...)
		passed := 0
		for passed < len(events) && events[passed].Seq <= decision.Through {
			passed++
		}
		if passed == 0 {
			return nil, fmt.Errorf("round of consumer %q: it passes no event", c.Name)
		}
		events = events[passed:]
	}
	return targets, nil
}
