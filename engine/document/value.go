// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

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
	m := mark{line: at.Line, col: at.Col, field: f, value: v, node: n, used: used, secret: f.kind == kindSecret || r.veiled[n]}
	if n.Kind == yaml.ScalarNode {
		m.raw = n.Value
	}
	r.note(path, m)
	switch {
	case n.Kind == 0 || isNull(n) && (f.kind != kindFree || n.Value == ""):
		r.refuse(path, used, "missing-value", path+" has no value", "write "+r.advice(*f)+removal(*f))
	case n.Style&yaml.TaggedStyle != 0:
		r.tagged(used, n, path)
	case f.kind == kindFree:
		r.free(used, path, v)
	case f.kind == kindSection:
		r.mapping(used, n, path, v, f)
	case f.kind == kindList:
		r.list(used, n, path, v, f)
	case f.kind == kindMap:
		r.openMapping(used, n, path, v, f)
	case n.Kind != yaml.ScalarNode:
		r.refuse(path, n, "wrong-kind", fmt.Sprintf("%s is %s, and it takes one value", path, r.kindOf(n, path)), "write "+r.advice(*f))
	default:
		r.scalar(used, n, path, v, f)
	}
}

func (r *reader) tagged(used, n *yaml.Node, path string) {
	tag := "a tag" // it may be a text that was meant to begin with !
	if usualTags.MatchString(n.ShortTag()) {
		tag = "the tag " + n.ShortTag()
	}
	r.refuse(path, used, "yaml-tag", fmt.Sprintf("%s has %s, and tags change what a text means", path, tag), "remove the tag, or put a text that begins with ! in quotes")
}

// usualTags are those that YAML itself defines.
var usualTags = regexp.MustCompile(`^!!(str|int|float|bool|null|map|seq|set|omap|pairs|binary|timestamp|merge)$`)

func (r *reader) mapping(used, n *yaml.Node, path string, v reflect.Value, f *field) {
	chosen, isChoice := reflect.TypeAssert[Choice](v.Addr())
	switch {
	case n.Kind == yaml.MappingNode && isChoice:
		r.section(n, path, v)
		r.choose(n, path, v, chosen, f)
	case n.Kind == yaml.MappingNode:
		r.section(n, path, v)
	case n.Kind == yaml.ScalarNode && f.word != "":
		if r.isWord(used, n, path, f) && isChoice {
			chosen.Choose(f.word)
		}
	default:
		r.refuse(path, used, "wrong-kind", fmt.Sprintf("%s is %s, and it takes a mapping", path, r.kindOf(n, path)), "write "+r.advice(*f))
	}
}

// isWord reads the word that stands in place of a mapping or a list.
func (r *reader) isWord(used, n *yaml.Node, path string, f *field) bool {
	text, ok := r.expand(used, n, path)
	if ok && text != f.word {
		r.refuse(path, used, "bad-word", fmt.Sprintf("%s is %s", path, r.Quoted(path)), wordFix(*f, text))
	}
	return ok && text == f.word
}

// choose finds the one key of a choice.
func (r *reader) choose(n *yaml.Node, path string, v reflect.Value, chosen Choice, f *field) {
	var written []string
	for _, f := range fieldsOf(v.Type()) {
		p := join(path, f.key)
		if _, ok := r.marks[p]; ok || r.bad[p] {
			written = append(written, f.key)
		}
	}
	switch {
	case len(written) == 1:
		chosen.Choose(written[0])
	case len(written) > 1:
		first, second := r.marks[join(path, written[0])], r.marks[join(path, written[1])]
		if first.line > second.line || (first.line == second.line && first.col > second.col) {
			first, second = second, first
		}
		r.bad[path] = true
		fix := "keep one of them"
		if f.apart != "" {
			fix += ", and " + f.apart
		}
		r.report(r.position(second), "bad-choice", fmt.Sprintf("%s has %s, and it takes one of them", path, strings.Join(written, " and ")),
			fix, r.position(first))
	default:
		// When an unknown key stands in its place, that is said already.
		if len(n.Content) == 0 {
			r.report(r.at(n), "bad-choice", path+" is an empty mapping", "write one of "+keysOf(v.Type())+" in it")
		}
		r.bad[path] = true
	}
}

// list reads a list, once its length is known to be allowed.
func (r *reader) list(used, n *yaml.Node, path string, v reflect.Value, f *field) {
	switch {
	case n.Kind == yaml.ScalarNode && f.word != "":
		if r.isWord(used, n, path, f) {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
			m := r.marks[path]
			m.word = true
			r.note(path, m)
		}
		return
	case n.Kind != yaml.SequenceNode:
		r.refuse(path, used, "wrong-kind", fmt.Sprintf("%s is %s, and it takes a list", path, r.kindOf(n, path)), "write "+r.advice(*f))
		return
	case r.tooLong(n, len(n.Content), path, f):
		return
	}
	// All at once: marks point into the entries, so that they may not move.
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		if f.entry.kind == kindSection {
			fill(v.Index(i))
		}
		r.value(item, indexed(path, i), v.Index(i), f.entry)
	}
}

func (r *reader) tooLong(n *yaml.Node, count int, path string, f *field) bool {
	most, err := strconv.Atoi(f.limit("max"))
	if err != nil || count <= most {
		return false
	}
	r.refuse(path, n, "long-list", fmt.Sprintf("%s has %d entries", path, count), fmt.Sprintf("keep at most %d", most))
	return true
}

// openMapping reads a mapping whose keys are the author's.
func (r *reader) openMapping(used, n *yaml.Node, path string, v reflect.Value, f *field) {
	if n.Kind != yaml.MappingNode {
		r.refuse(path, used, "wrong-kind", fmt.Sprintf("%s is %s, and it takes a mapping", path, r.kindOf(n, path)), "write "+r.advice(*f))
		return
	}
	entries := r.entries(n)
	if r.tooLong(n, len(entries), path, f) {
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(entries)))
	for _, e := range entries {
		p := keyed(path, e.key.Value)
		if r.badKey(e.key, p, f) {
			continue
		}
		r.keys[path] = append(r.keys[path], e.key.Value)
		into := reflect.New(f.typ.Elem()).Elem()
		if f.entry.kind == kindSection {
			fill(into)
		}
		r.value(e.value, p, into, f.entry)
		v.SetMapIndex(reflect.ValueOf(e.key.Value).Convert(v.Type().Key()), into)
	}
}

// badKey refuses a key of the author's own that readers would not take for the same text, or that the rule
// on keys does not allow.
func (r *reader) badKey(key *yaml.Node, path string, f *field) bool {
	if why, fix := keyTrouble(key); why != "" {
		r.refuse(path, key, "bad-key", keyName(key.Value)+why, fix)
		return true
	}
	if format, ok := r.formats[f.keyRule]; ok {
		if why, fix := format.Trouble(key.Value); why != "" {
			if fix == "" {
				fix = format.Fix
			}
			r.refuse(path, key, format.Code, keyName(key.Value)+" is a key "+why, fix)
			return true
		}
	}
	return false
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
