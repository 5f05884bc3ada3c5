// SPDX-License-Identifier: Apache-2.0

package config

import "testing"

// TestShippedFile holds the promise of the example: it is complete, it is right, and it shows every rule.
func TestShippedFile(t *testing.T) {
	env := func(name string) (string, bool) {
		return "postgres://app@db.example.com/shop", name == "BOTHY_DATABASE_URL"
	}
	cfg, problems := Load("../../consumers.yaml", env)
	if len(problems) > 0 {
		t.Fatalf("consumers.yaml has problems:\n%v", problems)
	}
	rules := map[Rule]bool{}
	for _, c := range cfg.Consumers {
		rules[c.Recipients.Rule] = true
	}
	for _, rule := range []Rule{RuleNone, RuleField, RuleList, RuleQuery, RuleHandler} {
		if !rules[rule] {
			t.Errorf("consumers.yaml shows no consumer with the rule %s", rule)
		}
	}
	if cfg.Jobs.Migrate {
		t.Error("jobs.migrate is on in consumers.yaml: a file that is copied must not touch River's tables unasked")
	}
}
