// SPDX-License-Identifier: Apache-2.0

package document

import (
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"
)

// Shown tells of each key whether its value can hold no secret, wherever it stands, so that a message may show
// it as it is written: the keys of texts, counts, durations and switches, and of lists of them. A key that is a Secret in
// one section is one everywhere, and of a key that the grammar does not know nothing is known.
func (g *Grammar[T]) Shown() func(key string) bool {
	return g.compiled().shows
}

// shows is Shown for one key.
func (s *shape) shows(key string) bool { return s.open()[key] }

// openKeys are the keys that hold no secret anywhere in a grammar.
func openKeys(root reflect.Type) map[string]bool {
	shown := map[string]bool{}
	visit(root, map[reflect.Type]bool{}, func(f *field) {
		before, known := shown[f.key]
		shown[f.key] = f.plain() && (before || !known)
	})
	return shown
}

// keyOf is the key that the value of a path belongs to: that of the list or the map for its entries.
func keyOf(path string) string {
	for strings.HasSuffix(path, "]") && strings.Contains(path, "[") {
		path = path[:strings.LastIndexByte(path, '[')]
	}
	return lastKey(path)
}

// veil notes the scalars with an anchor that stand under a key which may hold a secret: an alias must not bring
// them to light. key is the one that the node belongs to.
func (r *reader) veil(n *yaml.Node, key string) {
	if n.Kind == yaml.ScalarNode && n.Anchor != "" && !r.shows(key) {
		r.veiled[n] = true
	}
	for i, child := range n.Content {
		switch {
		case n.Kind != yaml.MappingNode:
			r.veil(child, key)
		case i%2 == 1:
			r.veil(child, n.Content[i-1].Value)
		}
	}
}

// kindOf says in a message what a node is. The text of a scalar is shown where its key can hold no secret.
func (r *reader) kindOf(n *yaml.Node, path string) string {
	if n.Kind != yaml.MappingNode && n.Kind != yaml.SequenceNode && (!r.shows(keyOf(path)) || r.veiled[n]) {
		return unseen
	}
	return kindName(n)
}

// visit calls each with every field of a grammar.
func visit(t reflect.Type, seen map[reflect.Type]bool, each func(*field)) {
	if seen[t] {
		return
	}
	seen[t] = true
	for _, f := range fieldsOf(t) {
		each(&f)
		if inner, _ := f.below(); inner != nil {
			visit(inner, seen, each)
		}
	}
}

// plain reports whether a field is written as texts that are no secret.
func (f *field) plain() bool {
	for f.kind == kindList {
		f = f.entry
	}
	switch f.kind {
	case kindText, kindCount, kindDuration, kindSwitch:
		return true
	case kindSection:
		return f.word != ""
	default:
		return false
	}
}
