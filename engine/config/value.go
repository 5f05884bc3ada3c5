// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/problem"
)

// choice is a struct of which exactly one key is written, or a word in its place.
type choice interface{ choose(key string) }

// value reads one node into v as the declaration f wants it.
func (r *reader) value(n *yaml.Node, path string, v reflect.Value, f *field) {
	used := n
	n = behind(n)
	if r.spent(used) || r.odd[n] {
		r.bad[path] = true
		return
	}
	at := r.at(used)
	if n.Kind != yaml.ScalarNode {
		at = r.at(n)
	}
	r.note(path, mark{line: at.Line, col: at.Col, field: f, value: v, secret: f.kind == kindSecret})
	switch {
	case n.Kind == 0 || isNull(n):
		r.refuse(path, used, "missing-value", path+" has no value", "write "+advice(*f)+removal(*f))
	case n.Style&yaml.TaggedStyle != 0:
		r.refuse(path, used, "yaml-tag", fmt.Sprintf("%s has the tag %s, and tags change what a text means", path, n.ShortTag()), "remove the tag")
	case f.kind == kindSection:
		r.mapping(used, n, path, v, f)
	case f.kind == kindSections:
		r.sections(used, n, path, v, f)
	case f.kind == kindTexts:
		r.texts(used, n, path, v, f)
	case n.Kind != yaml.ScalarNode:
		r.refuse(path, n, "wrong-kind", fmt.Sprintf("%s is %s, and it takes one value", path, kindName(n)), "write "+advice(*f))
	default:
		r.scalar(used, n, path, v, f)
	}
}

func (r *reader) mapping(used, n *yaml.Node, path string, v reflect.Value, f *field) {
	chosen, isChoice := reflect.TypeAssert[choice](v.Addr())
	switch {
	case n.Kind == yaml.MappingNode && isChoice:
		r.section(n, path, v)
		r.choose(n, path, v, chosen)
	case n.Kind == yaml.MappingNode:
		r.section(n, path, v)
	case n.Kind == yaml.ScalarNode && f.word != "":
		text, ok := r.expand(used, n, path)
		switch {
		case !ok: // said already, or not known yet
		case text == f.word:
			chosen.choose(f.word)
		default:
			r.refuse(path, used, "bad-word", fmt.Sprintf("%s is %s", path, r.quoted(path)), wordFix(*f, text))
		}
	default:
		r.refuse(path, used, "wrong-kind", fmt.Sprintf("%s is %s, and it takes a mapping", path, kindName(n)), "write "+advice(*f))
	}
}

// choose finds the one key of a choice.
func (r *reader) choose(n *yaml.Node, path string, v reflect.Value, chosen choice) {
	var written []string
	for _, f := range fieldsOf(v.Type()) {
		p := join(path, f.key)
		if _, ok := r.marks[p]; ok || r.bad[p] {
			written = append(written, f.key)
		}
	}
	switch {
	case len(written) == 1:
		chosen.choose(written[0])
	case len(written) > 1:
		first, second := r.marks[join(path, written[0])], r.marks[join(path, written[1])]
		if first.line > second.line || (first.line == second.line && first.col > second.col) {
			first, second = second, first
		}
		r.bad[path] = true
		r.report(r.position(second), "bad-rule", fmt.Sprintf("%s has %s, and a consumer has one rule", path, strings.Join(written, " and ")),
			"keep one of them, and give the other a consumer of its own", r.position(first))
	default:
		// When an unknown key stands in its place, that is said already.
		if len(n.Content) == 0 {
			r.report(r.at(n), "bad-rule", path+" is an empty mapping", "write one of "+keysOf(v.Type())+" in it")
		}
		r.bad[path] = true
	}
}

func (r *reader) position(m mark) problem.Position {
	return problem.Position{File: r.file, Line: m.line, Col: m.col}
}

// list checks that a node is a list of an allowed length, before anything in it is read.
func (r *reader) list(used, n *yaml.Node, path string, f *field) bool {
	if n.Kind != yaml.SequenceNode {
		r.refuse(path, used, "wrong-kind", fmt.Sprintf("%s is %s, and it takes a list", path, kindName(n)), "write "+advice(*f))
		return false
	}
	if most, err := strconv.Atoi(f.limit("max")); err == nil && len(n.Content) > most {
		r.refuse(path, n, "long-list", fmt.Sprintf("%s has %d entries", path, len(n.Content)), fmt.Sprintf("keep at most %d", most))
		return false
	}
	return true
}

func (r *reader) sections(used, n *yaml.Node, path string, v reflect.Value, f *field) {
	if !r.list(used, n, path, f) {
		return
	}
	// All at once: marks point into the entries, so that they may not move.
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	entry := field{kind: kindSection, typ: f.typ}
	for i, item := range n.Content {
		fill(v.Index(i))
		r.value(item, fmt.Sprintf("%s[%d]", path, i), v.Index(i), &entry)
	}
}

func (r *reader) texts(used, n *yaml.Node, path string, v reflect.Value, f *field) {
	if !r.list(used, n, path, f) {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	_, rules, _ := strings.Cut(f.validate, ",dive,")
	entry := field{kind: kindText, validate: rules}
	for i, item := range n.Content {
		r.value(item, fmt.Sprintf("%s[%d]", path, i), v.Index(i), &entry)
	}
}

// behind follows an alias to what it stands for.
func behind(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
		if text := shown(n.Value); text != unseen {
			return "the text " + text
		}
		return unseen
	}
}

// unseen stands for a text in a message that may hold a password.
const unseen = "a text that is not shown here"

// shown is a text in quotes, as far as a message may show it: a URL in the wrong place is still a URL, and
// may hold a password.
func shown(text string) string {
	if strings.Contains(text, "://") || strings.Contains(strings.ToLower(text), "password") {
		return unseen
	}
	return fmt.Sprintf("%q", short(text))
}

// short keeps a message on one readable line.
func short(text string) string {
	const most = 60
	text, _, more := strings.Cut(strings.TrimRight(text, "\n"), "\n")
	if more {
		return short(text) + " ..."
	}
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}

func keysOf(t reflect.Type) string {
	var keys []string
	for _, f := range fieldsOf(t) {
		keys = append(keys, f.key)
	}
	return strings.Join(keys, ", ")
}
