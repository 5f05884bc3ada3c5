// SPDX-License-Identifier: Apache-2.0

package config

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

// mark is where a value of the Config is written.
type mark struct {
	line, col int
	field     *field        // nil for an entry of a list
	value     reflect.Value // the place in the Config
	raw       string        // the author's text, before variables; empty for mappings and lists
	variable  bool          // the text came out of a variable, so it is not shown
	unknown   bool          // a variable without a value: nothing can be said about it
	secret    bool
}

// reader walks the nodes of a document and fills a Config.
type reader struct {
	file     string
	lookup   func(string) (string, bool)
	root     reflect.Type
	marks    map[string]mark
	order    []string        // the paths of marks as they were read
	bad      map[string]bool // paths that have a problem already: nothing more is said about them
	odd      map[*yaml.Node]bool
	seen     map[spot]bool
	problems problem.List
	nodes    int
}

// spot is one finding at one place. A value that is merged into three consumers is wrong once, while a
// place that lacks two keys is wrong twice: what is to be done tells them apart, and names no path.
type spot struct {
	at        problem.Position
	code, fix string
}

func newReader(file string, lookup func(string) (string, bool)) *reader {
	return &reader{
		file: file, lookup: lookup,
		root:  reflect.TypeFor[Config](),
		marks: map[string]mark{}, bad: map[string]bool{}, odd: map[*yaml.Node]bool{}, seen: map[spot]bool{},
	}
}

// Parse reads and checks a file that is already in memory; file is its name in the problems. The rest is
// as with Load.
func Parse(file string, text []byte, lookup func(string) (string, bool)) (*Config, problem.List) {
	r := newReader(file, lookup)
	cfg := &Config{file: file}
	if document := r.source(text); document != nil {
		fill(reflect.ValueOf(cfg).Elem())
		r.section(document, "", reflect.ValueOf(cfg).Elem())
		if r.nodes <= maxNodes { // else what was read is only a part
			r.check(cfg)
		}
		cfg.inherit(r.marks)
		cfg.trim()
	}
	cfg.marks = r.marks
	r.problems.Sort()
	if r.problems.Errors() > 0 {
		return nil, r.problems
	}
	return cfg, r.problems
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

// inherit gives every consumer the defaults of the section consumer for what it does not say itself.
func (c *Config) inherit(marks map[string]mark) {
	sources := map[string]reflect.Value{}
	root := reflect.ValueOf(c).Elem()
	for _, section := range fieldsOf(root.Type()) {
		if section.kind != kindSection {
			continue
		}
		for _, f := range fieldsOf(section.typ) {
			sources[join(section.key, f.key)] = root.Field(section.index).Field(f.index)
		}
	}
	for i := range c.Consumers {
		v := reflect.ValueOf(&c.Consumers[i]).Elem()
		for _, f := range fieldsOf(v.Type()) {
			m, written := marks[fmt.Sprintf("consumers[%d].%s", i, f.key)]
			if source, ok := sources[f.inherit]; ok && (!written || m.unknown) {
				v.Field(f.index).Set(source)
			}
		}
	}
}

// trim takes from each query what the parentheses around it could not bear: a last semicolon, a comment.
func (c *Config) trim() {
	for i := range c.Consumers {
		rule := &c.Consumers[i].Recipients
		if query, why, _ := trimQuery(rule.Query); why == "" {
			rule.Query = query
		}
	}
}

// at is the position of a node.
func (r *reader) at(n *yaml.Node) problem.Position {
	return problem.Position{File: r.file, Line: max(n.Line, 1), Col: max(n.Column, 1)}
}

// report adds an error, once.
func (r *reader) report(at problem.Position, code, what, fix string, also ...problem.Position) {
	p := problem.Problem{At: at, Severity: problem.Error, Code: code, What: what, Fix: fix}
	if len(also) > 0 {
		p.Also = also[0]
	}
	if s := (spot{at, code, fix}); !r.seen[s] {
		r.seen[s] = true
		r.problems = append(r.problems, p)
	}
}

// refuse reports a problem of the value at path, after which nothing else is said about it.
func (r *reader) refuse(path string, n *yaml.Node, code, what, fix string) {
	r.bad[path] = true
	r.report(r.at(n), code, what, fix)
}

// note remembers where a value is written.
func (r *reader) note(path string, m mark) {
	if _, known := r.marks[path]; !known {
		r.order = append(r.order, path)
	}
	r.marks[path] = m
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
		f := fields[i]
		r.value(e.value, join(path, f.key), v.Field(f.index), &f)
	}
	if r.nodes > maxNodes {
		return
	}
	for _, f := range fields {
		p := join(path, f.key)
		if _, written := r.marks[p]; f.required && !written && !r.bad[p] {
			r.bad[p] = true
			r.report(r.at(n), "missing-key", fmt.Sprintf("%s has no key %q", r.titled(path), f.key), "add "+advice(f))
		}
	}
}

func indexOf(fields []field, key string) int {
	for i, f := range fields {
		if f.key == key {
			return i
		}
	}
	return -1
}

// titled names a section for a person: the entry of a list by its name where it has one.
func (r *reader) titled(path string) string {
	if path == "" {
		return "the file"
	}
	if m, ok := r.marks[join(path, "name")]; ok && !m.variable && m.raw != "" {
		return path + " (" + short(m.raw) + ")"
	}
	return path
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
