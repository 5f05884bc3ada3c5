// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/problem"
)

// maxNodes bounds the walk. A file of MaxSize cannot hold so many values itself: only one value that is
// repeated through aliases can.
const maxNodes = 100_000

// reader walks the nodes of a document and fills a struct.
type reader struct {
	*Tree
	*shape

	lookup Lookup
	odd    map[*yaml.Node]bool
	nodes  int
	copied int // bytes of JSON that free values came to
}

func newReader(file string, lookup Lookup, s *shape) *reader {
	tree := &Tree{file: file, marks: map[string]mark{}, keys: map[string][]string{}, bad: map[string]bool{}, seen: map[spot]bool{}}
	return &reader{Tree: tree, shape: s, lookup: lookup, odd: map[*yaml.Node]bool{}}
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
	var visit func(path string, v reflect.Value)
	visit = func(path string, v reflect.Value) {
		for _, f := range fieldsOf(v.Type()) {
			p, target := join(path, f.key), v.Field(f.index)
			switch {
			case f.inherit != "":
				if m, written := r.marks[p]; !written || m.unknown {
					target.Set(valueAt(root, f.inherit))
				}
			case f.kind == kindSection:
				visit(p, target)
			case f.kind == kindList && f.entry.kind == kindSection:
				for i := range target.Len() {
					visit(indexed(p, i), target.Index(i))
				}
			}
		}
	}
	visit("", root)
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
	entries := r.entries(n)
	fields := fieldsOf(v.Type())
	for _, e := range entries {
		i := indexOf(fields, e.key.Value)
		if i < 0 {
			r.unknownKey(e, path, fields)
			continue
		}
		f := &fields[i]
		r.value(e.value, join(path, f.key), v.Field(f.index), f)
	}
	if r.nodes > maxNodes {
		return
	}
	for _, f := range fields {
		if !f.required {
			continue
		}
		p := join(path, f.key)
		if _, written := r.marks[p]; !written && !r.bad[p] {
			r.bad[p] = true
			r.report(r.at(n), "missing-key", fmt.Sprintf("%s has no key %q", r.titled(path), f.key), "add "+r.advice(f))
		}
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

func (r *reader) unknownKey(e entry, path string, fields []field) {
	key := e.key.Value
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.key
	}
	fix := "remove it, or use one of " + strings.Join(names, ", ")
	if near := problem.Nearest(key, names); near != "" {
		fix = fmt.Sprintf("did you mean %q?", near)
	} else if elsewhere := r.elsewhere(key); elsewhere != "" {
		fix = "did you mean " + elsewhere + "?"
	}
	where := "here"
	if path != "" {
		where = "in " + path
	}
	r.report(r.at(e.key), "unknown-key", keyName(key)+" is not known "+where, fix)
}

// elsewhere is the path of the key of that name, or nearly that name, in another section.
func (r *reader) elsewhere(key string) string {
	paths := knownKeys(r.root, "")
	last := make([]string, len(paths))
	for i, p := range paths {
		last[i] = lastKey(p)
	}
	near := problem.Nearest(key, last)
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
