// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/problem"
)

// The bounds of the search for aliases without an anchor: what was not found within them is found by the next run.
const (
	maxAliases    = 50
	maxAliasBytes = 4 << 20 // of text that is parsed
)

// aliases reports every alias of a text that has no anchor before it. The parser stops at the first one and names no
// line. So each place where an alias may stand is tried: the text that ends behind it fails for that alias only when
// it is one, and no part of a comment, a quote or a block. It gives the text without what it reported, and what else
// is wrong with it.
func (r *reader) aliases(text []byte, err error) ([]byte, error) {
	text = slices.Clone(text)
	var found []alias
	defer func() { r.reportAliases(found, text, err) }()
	from, spent := 0, 0
	for range maxAliases {
		message := yamlMessage(err)
		m := unknownAnchor.FindStringSubmatch(message)
		if m == nil {
			break
		}
		at, used := findAlias(text, m[1], from, maxAliasBytes-spent)
		if at < 0 {
			break
		}
		found = append(found, alias{r.offset(text, at), m[1]})
		text[at] = 'x' // an ordinary text: the parser gets as far as the next one
		from = at + 1
		if spent += used + at; spent > maxAliasBytes {
			return text, nil
		}
		if _, _, err = parse(text); err == nil {
			break
		}
	}
	return text, err
}

// alias is one without an anchor.
type alias struct {
	at   problem.Position
	name string
}

// reportAliases says the name of each alias whose key can hold no secret. text has ordinary texts in their places;
// where it still is no YAML, no key is known.
func (r *reader) reportAliases(found []alias, text []byte, err error) {
	keys := map[problem.Position]string{}
	if document, _, again := parse(text); len(found) > 0 && err == nil && again == nil && document != nil {
		r.keysByPlace(document, "", keys)
	}
	for _, a := range found {
		what, fix, _ := sayYAML("unknown anchor '' referenced")
		if name := short(a.name); r.shows(keys[a.at]) && shown(name) != unseen {
			what = fmt.Sprintf("*%s is an alias to YAML, and no anchor &%s stands before it", name, name)
			fix += `: "*` + name + `"`
		}
		r.report(a.at, "bad-yaml", what, fix)
	}
}

// keysByPlace notes for each scalar the key that it belongs to.
func (r *reader) keysByPlace(n *yaml.Node, key string, keys map[problem.Position]string) {
	if n.Kind == yaml.ScalarNode {
		keys[r.at(n)] = key
	}
	for i, child := range n.Content {
		switch {
		case n.Kind != yaml.MappingNode:
			r.keysByPlace(child, key, keys)
		case i%2 == 1:
			r.keysByPlace(child, n.Content[i-1].Value, keys)
		}
	}
}

// yamlMessage is what the parser says, without the line.
func yamlMessage(err error) string {
	if m := yamlError.FindStringSubmatch(err.Error()); m != nil {
		return m[2]
	}
	return err.Error()
}

// findAlias is the place of the first alias of a name from a place on, or -1, and how many bytes were parsed for it.
func findAlias(text []byte, name string, from, most int) (at, used int) {
	alias := []byte("*" + name)
	for used <= most {
		i := bytes.Index(text[from:], alias)
		if i < 0 {
			break
		}
		at, end := from+i, from+i+len(alias)
		from = end
		if at > 0 && bytes.IndexByte([]byte(" \t\r\n[{,:"), text[at-1]) < 0 {
			continue
		}
		line := text[1+bytes.LastIndexAny(text[:at], "\r\n") : at]
		if bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("#")) {
			continue // no YAML reader sees more than a comment or a text there
		}
		used += end
		if _, _, err := parse(text[:end]); err != nil && yamlMessage(err) == fmt.Sprintf("unknown anchor '%s' referenced", name) {
			return at, used
		}
	}
	return -1, used
}

// offset is the position of a byte of the text.
func (r *reader) offset(text []byte, at int) problem.Position {
	end := endOf(text[:at])
	return problem.Position{File: r.file, Line: end.line, Col: end.col}
}
