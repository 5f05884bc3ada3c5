// SPDX-License-Identifier: Apache-2.0

package config

// failures refuses a number of failures that nothing waits for, and warns of a policy for a rule that cannot fail.
func (c checker) failures(i int) {
	policy, after := in(i, "on_failure"), in(i, "after")
	if !c.usable(policy) {
		return
	}
	consumer := c.cfg.Consumers[i]
	if c.Written(after) && consumer.OnFailure != "quarantine" {
		what := after + " is written, and " + policy + " is not quarantine: the consumer stands still however often it fails"
		fix := "write on_failure: quarantine, or remove the key after"
		if c.Written(policy) {
			c.Refuse(after, "idle-after", what, fix, policy)
		} else {
			c.Refuse(after, "idle-after", what, fix)
		}
	}
	switch consumer.Recipients.Rule {
	case RuleNone, RuleField, RuleList:
		if c.Written(policy) && consumer.OnFailure == "quarantine" && c.Sound(in(i, "recipients")) {
			c.Warn(policy, "idle-policy", policy+" is quarantine, and "+in(i, "recipients")+" is a rule that fails on no event: nothing is ever set aside",
				"remove the key on_failure", in(i, "recipients"))
		}
	case RuleQuery, RuleHandler:
	}
}
