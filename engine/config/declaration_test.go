// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"testing"
)

// TestDeclarations holds every declared key to its tags: they are whole, their defaults are good, and their
// rules are known to the validator (a rule with a typo makes it panic, here and not at a user's).
func TestDeclarations(t *testing.T) {
	for _, flaw := range grammar.Flaws() {
		t.Error(flaw)
	}
}

// TestEveryDefaultCanBeOverridden finds for each key of the section consumer the key of an entry.
func TestEveryDefaultCanBeOverridden(t *testing.T) {
	overrides := map[string]bool{}
	for f := range reflect.TypeFor[Consumer]().Fields() {
		overrides[f.Tag.Get("inherit")] = true
	}
	for f := range reflect.TypeFor[Defaults]().Fields() {
		if key := "consumer." + f.Tag.Get("yaml"); !overrides[key] {
			t.Errorf("no key of a consumer inherits %s", key)
		}
	}
}
