// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"strings"
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
	kindTexts                    // a list of texts
	kindSection                  // a mapping with declared keys
	kindSections                 // a list of such mappings
)

// field is one declared key: the tags of a struct field, taken apart.
type field struct {
	key      string
	kind     kind
	index    int
	typ      reflect.Type // of the section, or of one entry of the list of sections
	validate string       // the rules without omitempty
	optional bool         // omitempty: the rules hold only for a value that was written
	required bool
	preset   string // the tag default: the text that an absent key stands for
	inherit  string // the path of the key that an absent key takes its value from
	word     string // a scalar that may stand in place of the mapping
	unit     string
	doc      string
}

// fieldsOf lists the declared keys of a struct in the order of declaration. Fields without a yaml tag, or
// with "-", are no keys.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		sf := t.Field(i)
		key := sf.Tag.Get("yaml")
		if key == "" || key == "-" {
			continue
		}
		f := field{
			key: key, index: i,
			validate: sf.Tag.Get("validate"),
			preset:   sf.Tag.Get("default"),
			inherit:  sf.Tag.Get("inherit"),
			word:     sf.Tag.Get("word"),
			unit:     sf.Tag.Get("unit"),
			doc:      sf.Tag.Get("doc"),
		}
		f.kind, f.typ = kindOf(sf.Type)
		if rest, ok := strings.CutPrefix(f.validate, "omitempty,"); ok {
			f.validate, f.optional = rest, true
		}
		f.required = f.rule("required") != nil
		fields = append(fields, f)
	}
	return fields
}

func kindOf(t reflect.Type) (kind, reflect.Type) {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return kindDuration, nil
	case reflect.TypeFor[Secret]():
		return kindSecret, nil
	case reflect.TypeFor[[]string]():
		return kindTexts, nil
	}
	switch t.Kind() { // a test refuses any other
	case reflect.String:
		return kindText, nil
	case reflect.Int, reflect.Int64:
		return kindCount, nil
	case reflect.Bool:
		return kindSwitch, nil
	case reflect.Struct:
		return kindSection, t
	case reflect.Slice:
		return kindSections, t.Elem()
	default:
		return 0, nil
	}
}

// rule finds a rule of the validate tag, such as min in min=1: its parameter, or nil. The rules after dive
// belong to the entries of a list and are not searched.
func (f field) rule(name string) *string {
	own, _, _ := strings.Cut(f.validate, ",dive")
	for rule := range strings.SplitSeq(own, ",") {
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

// knownKeys lists every path that the grammar knows, so that a key in the wrong place can be sent to the
// right one.
func knownKeys(t reflect.Type, prefix string) []string {
	var keys []string
	for _, f := range fieldsOf(t) {
		path := join(prefix, f.key)
		keys = append(keys, path)
		switch f.kind { //nolint:exhaustive // only these two have keys below them
		case kindSection:
			keys = append(keys, knownKeys(f.typ, path)...)
		case kindSections:
			keys = append(keys, knownKeys(f.typ, path+"[]")...)
		}
	}
	return keys
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// parent cuts the last key or the last index off a path.
func parent(path string) string {
	if i := strings.LastIndexAny(path, ".["); i >= 0 {
		return path[:i]
	}
	return ""
}
