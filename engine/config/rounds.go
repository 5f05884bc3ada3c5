// SPDX-License-Identifier: Apache-2.0

package config

import "example.com/bothy/engine/round"

// Rounds are the declared consumers as rounds see them, in the order of the file.
func (c *Config) Rounds() []round.Consumer {
	consumers := make([]round.Consumer, len(c.Consumers))
	for i, c := range c.Consumers {
		consumers[i] = round.Consumer{
			Name: c.Name, Batch: c.Batch, MaxJobs: c.MaxJobsPerRound, Types: c.Types, Rule: c.Recipients.rule(),
			Job: round.Job{Kind: c.Job.Kind, Queue: c.Job.Queue, MaxAttempts: c.Job.MaxAttempts, Priority: c.Job.Priority},
		}
	}
	return consumers
}

// rule is the recipient rule as rounds see it.
func (r Recipients) rule() round.Rule {
	kinds := map[Rule]round.RuleKind{
		RuleNone: round.RuleNone, RuleField: round.RuleField, RuleList: round.RuleList, RuleQuery: round.RuleQuery, RuleHandler: round.RuleHandler,
	}
	return round.Rule{Kind: kinds[r.Rule], Field: r.Field, List: r.List, Query: r.Query, Handler: r.Handler}
}
