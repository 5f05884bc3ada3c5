// SPDX-License-Identifier: Apache-2.0

package document

import (
	"reflect"
	"strings"
	"sync"
	"time"
)

// kind is how a field is written in YAML.
type kind int

const (
	kindText     kind = iota + 1 // a scalar, taken as written
	kindSecret                   // the same, never shown
	kindCount                    // a whole number in plain digits
	kindDuration                 // digits with a unit
	kindSwitch                   // true or false
	kindFree                     // any value
	kindSection                  // a mapping with declared keys
	kindList                     // a list
	kindMap                      // a mapping with any keys
)

// field is one declared key: the tags of a struct field, taken apart. An entry of a list or of a map is a
// field without a key.
type field struct {
	key      string
	kind     kind
	index    int
	typ      reflect.Type // the Go type
	entry    *field       // of a list or a map
	tag      string       // the whole tag validate
	validate string       // its rules without omitempty and without those of the entries
	optional bool         // omitempty: the rules hold only for a value that was written
	required bool
	keyRule  string // the rule on the keys of a map
	preset   string // the tag default: the text that an absent key stands for
	inherit  string // the path of the key that an absent key takes its value from
	word     string // a scalar that may stand in place of the mapping or the list
	apart    string // how to mend two keys of a choice
	unit     string
	doc      string
	since    string
}

var declarations sync.Map // of reflect.Type to []field

// fieldsOf lists the declared keys of a struct in the order of declaration. Fields without a yaml tag, or
// with "-", are no keys.
func fieldsOf(t reflect.Type) []field {
	if fields, ok := declarations.Load(t); ok {
		return fields.([]field)
	}
	var fields []field
	for i := range t.NumField() {
		sf := t.Field(i)
		key := sf.Tag.Get("yaml")
		if key == "" || key == "-" {
			continue
		}
		f := declared(sf.Type, sf.Tag.Get("validate"))
		f.key, f.index = key, i
		f.preset, f.inherit = sf.Tag.Get("default"), sf.Tag.Get("inherit")
		f.word, f.apart = sf.Tag.Get("word"), sf.Tag.Get("apart")
		f.unit, f.doc, f.since = sf.Tag.Get("unit"), sf.Tag.Get("doc"), sf.Tag.Get("since")
		fields = append(fields, f)
	}
	declarations.Store(t, fields)
	return fields
}

// declared is the field of a type with the rules of its tag.
func declared(t reflect.Type, tag string) field {
	f := field{typ: t, kind: kindOf(t), tag: tag}
	own, rest := tag, ""
	if i := strings.Index(","+tag+",", ",dive,"); i >= 0 {
		own, rest = strings.TrimSuffix(tag[:i], ","), strings.TrimPrefix(strings.TrimPrefix(tag[i:], "dive"), ",")
	}
	if after, ok := strings.CutPrefix(rest, "keys,"); ok {
		f.keyRule, rest, _ = strings.Cut(after, ",endkeys")
		rest = strings.TrimPrefix(rest, ",")
	}
	own, f.optional = cutOptional(own)
	f.validate = own
	f.required = f.rule("required") != nil
	if f.kind == kindList || f.kind == kindMap {
		entry := declared(t.Elem(), rest)
		f.entry = &entry
	}
	return f
}

func cutOptional(rules string) (string, bool) {
	if rules == "omitempty" {
		return "", true
	}
	return strings.CutPrefix(rules, "omitempty,")
}

func kindOf(t reflect.Type) kind {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return kindDuration
	case reflect.TypeFor[Secret]():
		return kindSecret
	case reflect.TypeFor[Value]():
		return kindFree
	}
	switch t.Kind() { // Flaws reports any other
	case reflect.String:
		return kindText
	case reflect.Int, reflect.Int64:
		return kindCount
	case reflect.Bool:
		return kindSwitch
	case reflect.Struct:
		return kindSection
	case reflect.Slice:
		return kindList
	case reflect.Map:
		return kindMap
	default:
		return 0
	}
}

// rule finds a rule of the validate tag, such as min in min=1: its parameter, or nil.
func (f field) rule(name string) *string {
	for rule := range strings.SplitSeq(f.validate, ",") {
		if key, parameter, _ := strings.Cut(rule, "="); key == name {
			return &parameter
		}
	}
	return nil
}

// limit is the parameter of a rule, or "" without it.
func (f field) limit(name string) string {
	if parameter := f.rule(name); parameter != nil {
		return *parameter
	}
	return ""
}

// below gives the struct whose keys stand below a field, and what a path to them has after the field's own.
func (f *field) below() (t reflect.Type, suffix string) {
	for f.kind == kindList || f.kind == kindMap {
		f, suffix = f.entry, suffix+"[]"
	}
	if f.kind == kindSection {
		return f.typ, suffix
	}
	return nil, ""
}

// knownKeys lists every path that the grammar knows, so that a key in the wrong place can be sent to the
// right one.
func knownKeys(t reflect.Type, prefix string) []string {
	var keys []string
	for _, f := range fieldsOf(t) {
		path := join(prefix, f.key)
		keys = append(keys, path)
		if inner, suffix := f.below(); inner != nil {
			keys = append(keys, knownKeys(inner, path+suffix)...)
		}
	}
	return keys
}

func keysOf(t reflect.Type) string {
	var keys []string
	for _, f := range fieldsOf(t) {
		keys = append(keys, f.key)
	}
	return strings.Join(keys, ", ")
}
