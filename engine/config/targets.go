// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"strings"
)

// folded is a text without the differences that are hard to see.
func folded(text string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(text), "_", "-"))
}

// types warns of patterns that mean something else than they seem to, or nothing beside another.
func (c checker) types(i int) {
	patterns := c.cfg.Consumers[i].Types
	at := func(j int) string { return in(i, "types[") + strconv.Itoa(j) + "]" }
	for j, pattern := range patterns {
		if !c.Sound(at(j)) {
			continue
		}
		if k := strings.IndexAny(pattern, `[?{\`); k >= 0 {
			c.Warn(at(j), "literal-pattern", fmt.Sprintf("%s is %s, and %c stands for itself in it: only * is a pattern", at(j), c.Quoted(at(j)), pattern[k]),
				"write * for any run of characters, or one pattern for each type")
		}
		for k, other := range patterns {
			if k == j || !c.Sound(at(k)) || !covers(other, pattern) || k > j && covers(pattern, other) {
				continue
			}
			c.Warn(at(j), "covered-pattern", fmt.Sprintf("%s is %s, and %s, %s, takes all of that", at(j), c.Quoted(at(j)), at(k), c.Quoted(at(k))),
				"remove the narrower one, or the wider", at(k))
			break
		}
	}
}

// covers reports whether a pattern takes every text that another one takes. A * of the other is any text, so
// only a * can take it.
func covers(pattern, other string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == other
	}
	parts := strings.Split(pattern, "*")
	rest, ok := strings.CutPrefix(other, parts[0])
	if !ok {
		return false
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return strings.HasSuffix(rest, parts[last])
}

// targets warns of a rule that gives a target twice. Its jobs are made once all the same.
func (c checker) targets(i int) {
	rule := c.cfg.Consumers[i].Recipients
	query := in(i, "recipients.query")
	if c.Sound(query) && repeats(rule.Query) {
		c.Warn(query, "repeated-select", query+" joins one SELECT to itself by UNION ALL, so it gives each target twice; the job is made once all the same",
			"remove one of the two, or correct it")
	}
	seen := map[string]string{}
	for j, recipient := range rule.List {
		path := in(i, "recipients.list[") + strconv.Itoa(j) + "]"
		if !c.Sound(path) {
			continue
		}
		key := strings.ToLower(strings.TrimSpace(recipient))
		if before, known := seen[key]; known {
			c.Warn(path, "similar-entry", fmt.Sprintf("%s is %s, and %s is %s: they differ only in case or in blanks, and each gets a job", path, c.Quoted(path), before, c.Quoted(before)),
				"remove one of the two, if they are one recipient", before)
			continue
		}
		seen[key] = path
	}
}
