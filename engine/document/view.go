// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// view is one value as Show prints it: a scalar, or the values below it.
type view struct {
	key    string // empty for the entries of a list
	path   string
	text   string // a scalar, as a text
	json   any    // a scalar, as JSON has it
	words  bool   // the text is one of a closed set of words
	hidden bool   // the text stands for one that is not shown, and cannot be read again
	list   bool
	below  []view // nil for a scalar
	origin string
}

// viewer makes views of what was read.
type viewer struct {
	*shape

	tree *Tree
	root reflect.Value
}

// Show is what the program uses, as YAML with the origin of each value beside it: its place in the file, a
// variable, the default, or the key that it is inherited from. Secrets are hidden, in comments, so that the
// text can be read again.
func (g *Grammar[T]) Show(into *T, tree *Tree) []byte {
	var w yamlWriter
	w.mapping(g.view(into, tree), "")
	return w.out.Bytes()
}

// ShowJSON is the same as one JSON object: the file, the values, and the origin of each by its path.
func (g *Grammar[T]) ShowJSON(into *T, tree *Tree) ([]byte, error) {
	all := g.view(into, tree)
	var origins object
	collectOrigins(all, &origins)
	return indentedJSON(object{{"file", tree.file}, {"values", jsonOf(view{below: all})}, {"origins", origins}})
}

func (g *Grammar[T]) view(into *T, tree *Tree) []view {
	v := reflect.ValueOf(into).Elem()
	return viewer{g.compiled(), tree, v}.section("", v)
}

// section views the keys of a struct that have a value.
func (w viewer) section(path string, v reflect.Value) []view {
	views := []view{}
	for _, f := range fieldsOf(v.Type()) {
		p := join(path, f.key)
		if one, ok := w.value(p, v.Field(f.index), &f); ok {
			one.key = f.key
			views = append(views, one)
		}
	}
	return views
}

// value views one value. It is false for one that is absent and has no default.
func (w viewer) value(path string, v reflect.Value, f *field) (view, bool) {
	m, written := w.tree.marks[path]
	one := view{path: path, origin: w.origin(path, f), words: f.limit("oneof") != ""}
	if !written && f.key != "" && f.preset == "" && f.inherit == "" && f.kind != kindSection {
		return one, false
	}
	switch f.kind {
	case kindSection:
		if !written && f.key != "" && slices.ContainsFunc(fieldsOf(f.typ), func(f field) bool { return f.required }) {
			return one, false // it is absent, and so are its keys
		}
		one.below = w.section(path, v)
		if len(one.below) == 0 && f.word != "" && written {
			one.below, one.text, one.json, one.words = nil, f.word, f.word, true
			return one, true
		}
		return one, len(one.below) > 0 || f.key == ""
	case kindList:
		if v.Len() == 0 && f.word != "" {
			one.text, one.json, one.words = f.word, f.word, true
			return one, true
		}
		one.list, one.below = true, []view{}
		for i := range v.Len() {
			entry, _ := w.value(indexed(path, i), v.Index(i), f.entry)
			one.below = append(one.below, entry)
		}
	case kindMap:
		one.below = []view{}
		keys := w.tree.keys[path]
		if keys == nil { // it was not read but made
			for _, key := range slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }) {
				keys = append(keys, key.String())
			}
		}
		for _, key := range keys {
			entry, _ := w.value(keyed(path, key), v.MapIndex(reflect.ValueOf(key).Convert(v.Type().Key())), f.entry)
			entry.key = key
			one.below = append(one.below, entry)
		}
	default:
		w.scalar(&one, v, f, m)
	}
	return one, true
}

func (w viewer) scalar(one *view, v reflect.Value, f *field, m mark) {
	switch f.kind {
	case kindCount:
		one.text, one.json = strconv.FormatInt(v.Int(), 10), v.Int()
	case kindSwitch:
		one.text, one.json = strconv.FormatBool(v.Bool()), v.Bool()
	case kindDuration:
		one.text, one.words = sayDuration(time.Duration(v.Int())), true
	case kindFree:
		one.text, one.json = string(v.Bytes()), Value(v.Bytes())
		return
	default:
		one.text = v.String()
	}
	secret := m.secret || f.kind == kindText && shown(one.text) == unseen
	switch {
	case m.unknown || secret && whole(m.raw) || m.variable && strings.Contains(one.text, "${"):
		one.text, one.json = m.raw, m.raw
	case secret:
		one.text, one.json, one.hidden = hidden, hidden, true
	case one.json == nil:
		one.json = one.text
	}
}

// whole reports whether a text is one ${NAME} and nothing else, which tells no secret.
func whole(text string) bool {
	at := variable.FindStringIndex(text)
	return at != nil && at[0] == 0 && at[1] == len(text)
}

// origin says where a value comes from.
func (w viewer) origin(path string, f *field) string {
	m, written := w.tree.marks[path]
	at := w.tree.position(m).String()
	switch {
	case written && m.unknown && w.tree.looked:
		return at + ", a variable that is not set here"
	case written && m.unknown:
		return at + ", a variable that was not looked up"
	case written && m.variable:
		return at + ", from " + strings.Join(variable.FindAllString(m.raw, -1), " and ")
	case written:
		return at
	case f.inherit != "":
		from := w.fieldAt(f.inherit)
		return fmt.Sprintf("inherited from %s (%s)", f.inherit, w.origin(f.inherit, &from))
	default:
		return "default"
	}
}

// fieldAt is the declaration of a path of sections.
func (w viewer) fieldAt(path string) field {
	t := w.shape.root
	var f field
	for key := range strings.SplitSeq(path, ".") {
		fields := fieldsOf(t)
		f = fields[indexOf(fields, key)]
		t = f.typ
	}
	return f
}

// sayDuration is a duration without the zeros that Go adds: 1h, and not 1h0m0s.
func sayDuration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = strings.TrimSuffix(text, zero[1:])
		}
	}
	return text
}

func jsonOf(v view) any {
	switch {
	case v.below == nil:
		return v.json
	case v.list:
		list := make([]any, len(v.below))
		for i, entry := range v.below {
			list[i] = jsonOf(entry)
		}
		return list
	default:
		mapping := object{}
		for _, entry := range v.below {
			mapping.add(entry.key, jsonOf(entry))
		}
		return mapping
	}
}

func collectOrigins(views []view, into *object) {
	for _, v := range views {
		switch {
		case v.below == nil || v.list && (len(v.below) == 0 || v.below[0].below == nil):
			into.add(v.path, v.origin)
		default:
			collectOrigins(v.below, into)
		}
	}
}
