// SPDX-License-Identifier: Apache-2.0

package document

import "reflect"

// Shown tells of each key whether its value can hold no secret, wherever it stands, so that a message may show
// it as it is written: the keys of texts, counts, durations and switches, and of lists of them. A key that is a Secret in
// one section is one everywhere, and of a key that the grammar does not know nothing is known.
func (g *Grammar[T]) Shown() func(key string) bool {
	shown := map[string]bool{}
	visit(g.compiled().root, map[reflect.Type]bool{}, func(f *field) {
		before, known := shown[f.key]
		shown[f.key] = f.plain() && (before || !known)
	})
	return func(key string) bool { return shown[key] }
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
