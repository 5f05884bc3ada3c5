// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// The bounds of what is read. No honest file comes near them, and none that keeps to them takes more than
// a second or 200 MB.
const (
	maxMarks   = 500_000 // characters that may begin a value: counted before anything is parsed
	maxNodes   = 250_000 // values, each counted as often as an alias repeats it
	maxUnknown = 500     // unknown keys that are reported
)

// reader walks the nodes of a document and fills a struct.
type reader struct {
	*Tree
	*shape

	lookup  Lookup
	preview bool // a variable that is not set is a warning
	odd     map[*yaml.Node]bool
	veiled  map[*yaml.Node]bool // behind an anchor, and perhaps secret
	nodes   int
	unknown int // keys so far
	copied  int // bytes of JSON that free values came to
}

func newReader(file string, lookup Lookup, s *shape) *reader {
	tree := &Tree{file: file, marks: map[string]mark{}, keys: map[string][]string{}, bad: map[string]bool{}, seen: map[spot]bool{}, looked: lookup != nil}
	return &reader{Tree: tree, shape: s, lookup: lookup, odd: map[*yaml.Node]bool{}, veiled: map[*yaml.Node]bool{}}
}

// fill sets the defaults of a section and of the sections in it.
func fill(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		target := v.Field(f.index)
		switch {
		case f.kind == kindSection:
			fill(target)
		case f.preset != "":
			set(target, f.kind, f.preset)
		}
	}
}

// inherit gives every key with the tag inherit, where the file does not say it, the value of the key that
// the tag names.
func (r *reader) inherit(root reflect.Value) {
	var visit func(path string, v reflect.Value, f *field)
	visit = func(path string, v reflect.Value, f *field) {
		switch f.kind { //nolint:exhaustive // the others hold no keys
		case kindSection:
			fields := fieldsOf(v.Type())
			for i := range fields {
				visit(join(path, fields[i].key), v.Field(fields[i].index), &fields[i])
			}
		case kindList:
			for i := 0; f.holdsKeys() && i < v.Len(); i++ {
				visit(indexed(path, i), v.Index(i), f.entry)
			}
		case kindMap:
			for _, key := range r.keys[path] {
				if !f.holdsKeys() {
					break
				}
				at := reflect.ValueOf(key).Convert(v.Type().Key())
				entry := reflect.New(v.Type().Elem()).Elem()
				entry.Set(v.MapIndex(at))
				visit(keyed(path, key), entry, f.entry)
				v.SetMapIndex(at, entry)
			}
		}
		if m, written := r.marks[path]; f.inherit != "" && (!written || m.unknown) {
			v.Set(valueAt(root, f.inherit))
		}
	}
	visit("", root, &field{kind: kindSection})
}

// holdsKeys reports whether the entries of a list or a map are, or hold, mappings with declared keys.
func (f *field) holdsKeys() bool {
	inner, _ := f.below()
	return inner != nil
}

// valueAt is the value of a path of declared keys.
func valueAt(v reflect.Value, path string) reflect.Value {
	for key := range strings.SplitSeq(path, ".") {
		fields := fieldsOf(v.Type())
		v = v.Field(fields[indexOf(fields, key)].index)
	}
	return v
}

// spent counts a node, and reports whether the walk has grown beyond any honest file.
func (r *reader) spent(n *yaml.Node) bool {
	r.nodes++
	if r.nodes == maxNodes+1 {
		r.report(r.at(n), "too-many-aliases", fmt.Sprintf("with its aliases written out, the file holds more than %d values", maxNodes),
			"write fewer aliases, or shorter lists behind them")
	}
	return r.nodes > maxNodes
}

// section reads a mapping into the struct v.
func (r *reader) section(n *yaml.Node, path string, v reflect.Value) {
	fields := fieldsOf(v.Type())
	var unknown []entry
	for _, e := range r.entries(n) {
		i := indexOf(fields, e.key.Value)
		if i < 0 {
			unknown = append(unknown, e)
			continue
		}
		f := &fields[i]
		p := join(path, f.key)
		r.value(e.value, p, v.Field(f.index), f)
		if m, read := r.marks[p]; read && f.kind == kindList {
			m.key = e.key
			r.note(p, m)
		}
	}
	var missing []string
	for _, f := range fields {
		if p := join(path, f.key); f.required && !r.Written(p) && !r.bad[p] {
			missing = append(missing, f.key)
		}
	}
	for _, e := range unknown {
		r.unknownKey(e, path, fields, &missing)
	}
	if r.nodes > maxNodes {
		return
	}
	for _, key := range missing {
		r.bad[join(path, key)] = true
		r.report(r.at(n), "missing-key", fmt.Sprintf("%s has no key %q", r.titled(path), key), "add "+r.advice(fields[indexOf(fields, key)]))
	}
}

func indexOf(fields []field, key string) int {
	for i := range fields {
		if fields[i].key == key {
			return i
		}
	}
	return -1
}

// unknownKey reports a key that is not known. A required key that it most likely stands for is no longer missing: the
// one mistake is said once.
func (r *reader) unknownKey(e entry, path string, fields []field, missing *[]string) {
	key := e.key.Value
	where := "here"
	if path != "" {
		where = "in " + path
	}
	switch r.unknown++; {
	case r.unknown > maxUnknown+1:
		return
	case r.unknown == maxUnknown+1:
		r.report(r.at(e.key), "unknown-key", fmt.Sprintf("%s is not known %s, and %d before it are not known either; those after it are not reported", keyName(key), where, maxUnknown),
			"check that this is the right file")
		return
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.key
	}
	fix := "remove it, or use one of " + strings.Join(names, ", ")
	if near := nearest(key, *missing); near != "" {
		fix = fmt.Sprintf("did you mean %q?", near)
		r.bad[join(path, near)] = true
		*missing = slices.DeleteFunc(*missing, func(key string) bool { return key == near })
	} else if near := nearest(key, names); near != "" {
		fix = fmt.Sprintf("did you mean %q?", near)
	} else if elsewhere := r.elsewhere(key); elsewhere != "" {
		fix = "did you mean " + elsewhere + "?"
	}
	r.report(r.at(e.key), "unknown-key", keyName(key)+" is not known "+where, fix)
}

// elsewhere is the path of the key of that name, or nearly that name, in another section.
func (r *reader) elsewhere(key string) string {
	paths := r.known()
	last := make([]string, len(paths))
	for i, p := range paths {
		last[i] = lastKey(p)
	}
	near := nearest(key, last)
	for i := range paths {
		if near != "" && last[i] == near {
			return paths[i]
		}
	}
	return ""
}

func lastKey(path string) string {
	return path[strings.LastIndexByte(path, '.')+1:]
}
