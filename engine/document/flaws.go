// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Flaws lists what is wrong with the declarations themselves: a tag that is missing or contradicts another,
// a rule with a typo (which would make the validator panic at a user's), a default that is refused. A test
// of each grammar wants it empty.
func (g *Grammar[T]) Flaws() []string {
	f := flawFinder{shape: g.compiled(), seen: map[reflect.Type]bool{}}
	f.section("", f.root)
	for name, format := range f.formats {
		if why, _ := format.Trouble(format.Example); why != "" {
			f.say("the format "+name, "the example %q is refused: %s", format.Example, why)
		}
		if why, _ := format.Trouble(""); why == "" {
			f.say("the format "+name, "an empty text is accepted")
		}
		if format.Code == "" || format.Fix == "" {
			f.say("the format "+name, "there is no code or no fix")
		}
	}
	slices.Sort(f.found)
	return f.found
}

type flawFinder struct {
	*shape

	seen  map[reflect.Type]bool
	found []string
}

func (f *flawFinder) say(where, format string, args ...any) {
	f.found = append(f.found, where+": "+fmt.Sprintf(format, args...))
}

func (f *flawFinder) section(path string, t reflect.Type) {
	if f.seen[t] {
		return
	}
	f.seen[t] = true
	for _, d := range fieldsOf(t) {
		p := join(path, d.key)
		switch {
		case d.doc == "" || !strings.HasSuffix(d.doc, "."):
			f.say(p, "doc is %q, and it takes a sentence", d.doc)
		case d.since == "":
			f.say(p, "since is missing")
		case d.required && d.preset != "":
			f.say(p, "it is required and has a default")
		case d.inherit != "":
			f.inherited(p, d)
		}
		f.declaration(p, d)
		if d.preset != "" {
			f.preset(p, t.Field(d.index).Type, d)
		}
		if d.tag != "" && d.kind != kindSection && d.kind != kindFree {
			f.tag(p, t.Field(d.index).Type, d.tag)
		}
		if inner, suffix := d.below(); inner != nil {
			f.section(p+suffix, inner)
		}
	}
}

// declaration checks a field, or an entry of one.
func (f *flawFinder) declaration(path string, d field) {
	switch {
	case d.kind == 0:
		f.say(path, "no kind of value stands for %v", d.typ)
	case d.kind == kindCount && d.unit == "" && d.limit("eq") == "" && d.key != "" && len(d.limit("max")) > 1:
		f.say(path, "a count has no unit")
	case (d.kind == kindCount || d.kind == kindDuration) && span(d) == "":
		f.say(path, "there is no range")
	case d.kind == kindText && !f.spoken(d):
		f.say(path, "a text has no rule that a message knows")
	case d.entry != nil && d.entry.kind == kindSection && !strings.Contains(d.tag, "dive"):
		f.say(path, "without dive its entries are not checked")
	case d.keyRule != "" && f.formats[d.keyRule].Code == "":
		f.say(path, "there is no format %s for its keys", d.keyRule)
	}
	if d.entry != nil {
		f.declaration(path+"[]", *d.entry)
	}
}

// spoken reports whether a message knows each rule of a text.
func (f *flawFinder) spoken(d field) bool {
	said := false
	for rule := range strings.SplitSeq(d.validate, ",") {
		name, _, _ := strings.Cut(rule, "=")
		_, ok := f.formats[name]
		if !ok && name != "oneof" && name != "required" {
			return false
		}
		said = said || name != "required"
	}
	return said
}

func (f *flawFinder) inherited(path string, d field) {
	at := f.root
	var from field
	for key := range strings.SplitSeq(d.inherit, ".") {
		i := -1
		if at != nil && at.Kind() == reflect.Struct {
			i = indexOf(fieldsOf(at), key)
		}
		if i < 0 {
			f.say(path, "it inherits %s, which is no key", d.inherit)
			return
		}
		from = fieldsOf(at)[i]
		at = from.typ
	}
	if span(from) != span(d) || from.unit != d.unit || from.typ != d.typ {
		f.say(path, "it differs from %s in range, unit or type", d.inherit)
	}
}

func (f *flawFinder) preset(path string, t reflect.Type, d field) {
	v := reflect.New(t).Elem()
	set(v, d.kind, d.preset)
	if d.kind != kindSwitch && v.IsZero() {
		f.say(path, "the default %q cannot be read", d.preset)
	}
	if d.validate != "" {
		if err := f.rules.Var(v.Interface(), d.validate); err != nil {
			f.say(path, "the default %q is not allowed: %v", d.preset, err)
		}
	}
}

// tag makes the validator read a tag, with one entry in each list.
func (f *flawFinder) tag(path string, t reflect.Type, tag string) {
	defer func() {
		if p := recover(); p != nil {
			f.say(path, "the tag validate is wrong: %v", p)
		}
	}()
	v := reflect.New(t).Elem()
	switch t.Kind() { //nolint:exhaustive // the others have no entries
	case reflect.Slice:
		v.Set(reflect.MakeSlice(t, 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(t))
		v.SetMapIndex(reflect.ValueOf("x").Convert(t.Key()), reflect.New(t.Elem()).Elem())
	}
	_ = f.rules.Var(v.Interface(), tag)
}
