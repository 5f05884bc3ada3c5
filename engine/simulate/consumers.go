// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"strings"

	"example.com/bothy/engine/round"
)

// event is what a producer appended, without its number.
type event struct {
	index    int // in the catalogue
	kind     string
	resource string
	audience []string
}

// row is the event as a round reads it.
func (e event) row(seq int64) round.Event {
	return round.Event{Seq: seq, Type: e.kind, Resource: e.resource, Audience: e.audience}
}

// catalogue are the events that producers choose from.
var catalogue = []event{
	{0, "order.created", "robin", []string{"alex", "sam"}},
	{1, "order.created", "", []string{"alex", "alex"}},
	{2, "order.paid", "sam", nil},
	{3, "user.created", "alex", []string{"robin"}},
	{4, "user.left", "", []string{"sam", "robin", "sam"}},
	{poisoned, "order.created", "poison", []string{"alex"}},
}

// poisoned is the event of the catalogue on which the rules with a database fail while the fault FaultPoison lasts.
const poisoned = 5

// poisons reports whether the rule of a consumer fails on an event now.
func (w *world) poisons(c *declared, e round.Event) bool {
	return w.shape.Faults&FaultPoison != 0 && !w.settling && e.Resource == "poison" && c.rule != nil
}

// declared is a consumer and who its events are for. The rule is what the engine applies (for the kinds that
// need a database, rule stands for it); want is written apart from it, for the checks.
type declared struct {
	index int
	round.Consumer
	rule func(round.Event) []string // query and handler
	want func(event) []string       // who gets a job, each once
}

// rules has one consumer of each kind of rule.
var rules = []declared{
	{
		Consumer: round.Consumer{Name: "archive", Rule: round.Rule{Kind: round.RuleNone}},
		want:     func(event) []string { return []string{""} },
	},
	{
		Consumer: round.Consumer{Name: "push", Types: round.Types{"order.*"}, Rule: round.Rule{Kind: round.RuleField, Field: "audience"}},
		want: func(e event) []string {
			if !strings.HasPrefix(e.kind, "order.") {
				return nil
			}
			return e.audience
		},
	},
	{
		Consumer: round.Consumer{Name: "mail", Rule: round.Rule{Kind: round.RuleList, List: []string{"sam", "alex"}}},
		want:     func(event) []string { return []string{"alex", "sam"} },
	},
	{
		Consumer: round.Consumer{Name: "watch", Rule: round.Rule{Kind: round.RuleQuery, Query: "SELECT"}},
		rule:     func(e round.Event) []string { return append([]string{"robin"}, e.Audience...) },
		want:     func(e event) []string { return append(slices.Clone(e.audience), "robin") },
	},
	{
		Consumer: round.Consumer{Name: "index", Types: round.Types{"*.created"}, Rule: round.Rule{Kind: round.RuleHandler, Handler: "owner"}},
		rule: func(e round.Event) []string {
			if e.Resource == "" {
				return nil
			}
			return []string{e.Resource, e.Resource}
		},
		want: func(e event) []string {
			if !strings.HasSuffix(e.kind, ".created") || e.resource == "" {
				return nil
			}
			return []string{e.resource}
		},
	},
}

// recipientBit gives each recipient a bit, so that a set of them is a number.
func recipientBit(name string) uint8 {
	switch name {
	case "":
		return 1
	case "alex":
		return 2
	case "sam":
		return 4
	case "robin":
		return 8
	default:
		return 16
	}
}

// wanted is the set of recipients that an event must have a job for.
func (d *declared) wanted(e event) uint8 {
	var set uint8
	for _, name := range d.want(e) {
		set |= recipientBit(name)
	}
	return set
}
