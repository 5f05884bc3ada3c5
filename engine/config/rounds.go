// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"

	"example.com/bothy/engine/round"
)

// Rounds are the declared consumers as rounds see them, in the order of the file.
func (c *Config) Rounds() []round.Consumer {
	consumers := make([]round.Consumer, len(c.Consumers))
	for i, c := range c.Consumers {
		consumers[i] = round.Consumer{
			Name: c.Name, Batch: c.Batch, MaxJobs: c.MaxJobsPerRound, Types: c.Types, Rule: c.Recipients.rule(),
			QuarantineAfter: c.quarantineAfter(),
			Job:             round.Job{Kind: c.Job.Kind, Queue: c.Job.Queue, MaxAttempts: c.Job.MaxAttempts, Priority: c.Job.Priority},
		}
	}
	return consumers
}

// usualAfter is how many failures an event gets when the file does not say.
const usualAfter = 5

// quarantineAfter is how many rounds in a row fail before an event is set aside, or 0 when none ever is.
func (c Consumer) quarantineAfter() int {
	if c.OnFailure != "quarantine" {
		return 0
	}
	return cmp.Or(c.After, usualAfter)
}

// rule is the recipient rule as rounds see it.
func (r Recipients) rule() round.Rule {
	kinds := map[Rule]round.RuleKind{
		RuleNone: round.RuleNone, RuleField: round.RuleField, RuleList: round.RuleList, RuleQuery: round.RuleQuery, RuleHandler: round.RuleHandler,
	}
	return round.Rule{Kind: kinds[r.Rule], Field: r.Field, List: r.List, Query: r.Query, Handler: r.Handler}
}
