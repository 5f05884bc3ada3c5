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

// maxCovers bounds what the comparison of patterns costs in a file, in characters that are looked at: more than any
// honest file comes to. What is left of a stranger one gets no warning.
const maxCovers = 20_000_000

// pattern is a pattern on the event type, taken apart.
type pattern struct {
	text  string
	path  string
	parts []string // what stands between the *
	least int      // the characters of the shortest text that it takes
}

// types warns of patterns that mean something else than they seem to, or nothing beside another.
func (c *checker) types(i int) {
	var all, wide []pattern
	for j, text := range c.cfg.Consumers[i].Types {
		path := in(i, "types[") + strconv.Itoa(j) + "]"
		if !c.Sound(path) {
			continue
		}
		if k := strings.IndexAny(text, `[?{\`); k >= 0 {
			c.Warn(path, "literal-pattern", fmt.Sprintf("%s is %s, and %c stands for itself in it: only * is a pattern", path, c.Quoted(path), text[k]),
				"write * for any run of characters, or one pattern for each type")
		}
		p := newPattern(text)
		p.path = path
		all = append(all, p)
		if len(p.parts) > 1 { // without a * it takes itself alone, and no text stands in a list twice
			wide = append(wide, p)
		}
	}
	for _, p := range all {
		behind := false // whether the other stands behind p
		for _, other := range wide {
			if other.path == p.path {
				behind = true
				continue
			}
			if c.compared++; c.compared > maxCovers {
				return
			}
			if !c.covers(other, p) || behind && c.covers(p, other) {
				continue
			}
			c.Warn(p.path, "covered-pattern", fmt.Sprintf("%s is %s, and %s, %s, takes all of that", p.path, c.Quoted(p.path), other.path, c.Quoted(other.path)),
				"remove the narrower one, or the wider", other.path)
			break
		}
	}
}

func newPattern(text string) pattern {
	p := pattern{text: text, parts: strings.Split(text, "*")}
	p.least = len(text) - len(p.parts) + 1
	return p
}

func (c *checker) covers(p, other pattern) bool {
	if p.least > other.least {
		return false
	}
	c.compared += len(other.text)
	return p.covers(other)
}

// covers reports whether a pattern takes every text that another one takes. A * of the other is any text, so
// only a * can take it.
func (p pattern) covers(other pattern) bool {
	if len(p.parts) == 1 {
		return p.text == other.text
	}
	rest, ok := strings.CutPrefix(other.text, p.parts[0])
	if !ok {
		return false
	}
	last := len(p.parts) - 1
	for _, part := range p.parts[1:last] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return strings.HasSuffix(rest, p.parts[last])
}

// targets warns of a rule that gives a target twice. Its jobs are made once all the same.
func (c *checker) targets(i int) {
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
