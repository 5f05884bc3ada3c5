// SPDX-License-Identifier: Apache-2.0

package round_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/round"
)

func TestTypesMatch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		types round.Types
		in    string
		want  bool
	}{
		{nil, "anything", true},
		{round.Types{"order.*"}, "order.placed", true},
		{round.Types{"order.*"}, "order.item.added", true},
		{round.Types{"order.*"}, "order", false},
		{round.Types{"order.*"}, "reorder.placed", false},
		{round.Types{"*"}, "", true},
		{round.Types{"*.created"}, "message.created", true},
		{round.Types{"a*b*c"}, "abc", true},
		{round.Types{"a*b*c"}, "aXbYbZc", true},
		{round.Types{"a*b*c"}, "acb", false},
		{round.Types{"ab*ba"}, "aba", false},
		{round.Types{"message.read", "user.*"}, "user.registered", true},
		{round.Types{"message.read", "user.*"}, "message.created", false},
		{round.Types{"order.placed"}, "order.placed", true},
		{round.Types{"Order.*"}, "order.placed", false},
		{round.Types{strings.Repeat("*a", 50) + "b"}, strings.Repeat("a", 5000), false},
	}
	for _, tt := range tests {
		if got := tt.types.Match(tt.in); got != tt.want {
			t.Errorf("Types%v.Match(%q) = %v, want %v", tt.types, tt.in, got, tt.want)
		}
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	events := []round.Event{
		{Seq: 1, Type: "a", Audience: []string{"sam", "alex", "sam"}},
		{Seq: 2, Type: "b", ResourceID: "ord-1"},
		{Seq: 3, Type: "a", Audience: []string{"robin"}},
	}
	target := func(seq int64, r string) round.Target { return round.Target{Seq: seq, Recipient: r} }
	tests := map[string]struct {
		rule  round.Rule
		limit int
		want  round.Decision
	}{
		"none is one job per event": {round.Rule{Kind: round.RuleNone}, 100, round.Decision{
			Targets: []round.Target{target(1, ""), target(2, ""), target(3, "")}, Through: 9,
		}},
		"an array column, each element once": {round.Rule{Kind: round.RuleField, Field: "audience"}, 100, round.Decision{
			Targets: []round.Target{target(1, "alex"), target(1, "sam"), target(3, "robin")}, Through: 9,
		}},
		"a text column, empty is nobody": {round.Rule{Kind: round.RuleField, Field: "resource_id"}, 100, round.Decision{
			Targets: []round.Target{target(2, "ord-1")}, Through: 9,
		}},
		"a list": {round.Rule{Kind: round.RuleList, List: []string{"ops", "audit"}}, 100, round.Decision{
			Targets: []round.Target{target(1, "audit"), target(1, "ops"), target(2, "audit"), target(2, "ops"), target(3, "audit"), target(3, "ops")}, Through: 9,
		}},
		"the event that reaches the limit is taken whole": {round.Rule{Kind: round.RuleList, List: []string{"ops", "audit"}}, 3, round.Decision{
			Targets: []round.Target{target(1, "audit"), target(1, "ops"), target(2, "audit"), target(2, "ops")}, Through: 2, Cut: true,
		}},
		"a limit reached by the last event cuts nothing": {round.Rule{Kind: round.RuleNone}, 3, round.Decision{
			Targets: []round.Target{target(1, ""), target(2, ""), target(3, "")}, Through: 9,
		}},
		"a limit below one event": {round.Rule{Kind: round.RuleField, Field: "audience"}, 1, round.Decision{
			Targets: []round.Target{target(1, "alex"), target(1, "sam")}, Through: 1, Cut: true,
		}},
	}
	for name, tt := range tests {
		got := round.Decide(tt.rule, events, tt.limit, 9)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: Decide(%+v, limit %d) (-want +got):\n%s", name, tt.rule, tt.limit, diff)
		}
	}
}

func TestSelectNarrowsWhatARuleSees(t *testing.T) {
	t.Parallel()
	events := []round.Event{{Seq: 1, Type: "order.placed"}, {Seq: 2, Type: "message.created"}}
	if diff := cmp.Diff(events[1:], round.Select(events, round.Types{"message.*"})); diff != "" {
		t.Errorf("Select (-want +got):\n%s", diff)
	}
	if got := round.Select(events, nil); len(got) != 2 {
		t.Errorf("Select without types kept %d events, want 2", len(got))
	}
}
