// SPDX-License-Identifier: Apache-2.0

package document

import "gopkg.in/yaml.v3"

// entry is one key of a mapping with its value.
type entry struct{ key, value *yaml.Node }

// entries lists what a mapping holds after its merge keys: its own entries first, in their order, then
// what a merge adds. An own key wins over a merged one, and an earlier merge over a later one.
func (r *reader) entries(n *yaml.Node) []entry {
	return r.merged(n, map[*yaml.Node]bool{})
}

func (r *reader) merged(n *yaml.Node, open map[*yaml.Node]bool) []entry {
	open[n] = true
	defer delete(open, n)
	var own []entry
	var merge *entry
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := behind(n.Content[i]), n.Content[i+1]
		if r.spent(key) {
			return own
		}
		if r.odd[key] {
			continue // the problem with its characters is reported
		}
		if key.Kind != yaml.ScalarNode {
			r.report(r.at(n.Content[i]), "wrong-kind", "a key is "+kindName(key)+", and it takes a word", "write a key as one word")
			continue
		}
		if before, twice := first[key.Value]; twice {
			r.report(r.at(n.Content[i]), "duplicate-key", keyName(key.Value)+" is written twice",
				"keep one of the two", r.at(before))
			continue
		}
		first[key.Value] = n.Content[i]
		if key.ShortTag() == "!!merge" {
			merge = &entry{key, value}
			continue
		}
		own = append(own, entry{key, value})
	}
	if merge != nil {
		own = r.mergeInto(own, *merge, open)
	}
	return own
}

// keyName is a key in a message, unless it holds what a message may not show.
func keyName(key string) string {
	if text := shown(key); text != unseen {
		return "the key " + text
	}
	return "a key that is not shown here"
}

// mergeInto adds the entries of a merge key that are not there yet.
func (r *reader) mergeInto(own []entry, merge entry, open map[*yaml.Node]bool) []entry {
	known := map[string]bool{}
	for _, e := range own {
		known[e.key.Value] = true
	}
	sources := []*yaml.Node{merge.value}
	if list := behind(merge.value); list.Kind == yaml.SequenceNode {
		sources = list.Content
	}
	for _, source := range sources {
		mapping := behind(source)
		switch {
		case r.spent(source):
			return own
		case mapping.Kind != yaml.MappingNode:
			r.report(r.at(source), "bad-merge", "<< takes a mapping, or a list of mappings, and this is "+r.kindOf(mapping, ""),
				"point it to an anchor that stands before a mapping")
			continue
		case open[mapping]:
			r.report(r.at(source), "bad-merge", "<< merges a mapping into itself", "remove it")
			continue
		}
		for _, e := range r.merged(mapping, open) {
			if !known[e.key.Value] {
				known[e.key.Value] = true
				own = append(own, e)
			}
		}
	}
	return own
}
