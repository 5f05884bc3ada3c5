// SPDX-License-Identifier: Apache-2.0

package document

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/go-playground/validator/v10"
	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/problem"
)

// rulesOf is the validator with the formats of a grammar. It is built once: it caches what it learns of each
// struct, and it is safe for many goroutines.
func rulesOf(formats map[string]Format) *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string { return f.Tag.Get("yaml") })
	for name, f := range formats {
		// It fails for an empty name or a nil function only.
		_ = v.RegisterValidation(name, func(level validator.FieldLevel) bool {
			why, _ := f.Trouble(level.Field().String())
			return why == ""
		})
	}
	return v
}

// check applies the validate tags to what was read.
func (r *reader) check(into any) {
	r.violations("", r.rules.Struct(into))
	// A tag that begins with omitempty also passes a zero that somebody wrote.
	for _, path := range r.order {
		m := r.marks[path]
		if m.field.optional && m.field.validate != "" && m.value.IsZero() {
			r.violations(path, r.rules.Var(m.value.Interface(), m.field.validate))
		}
	}
	for _, path := range r.order {
		if m := r.marks[path]; m.field.kind == kindList && m.field.entry.kind == kindText {
			r.twice(path, m)
		}
	}
}

// violations reports what the validator found. path is that of the value when it was checked alone.
func (r *reader) violations(path string, err error) {
	var all validator.ValidationErrors
	if !errors.As(err, &all) {
		return
	}
	for _, violation := range all {
		p := path
		if p == "" {
			_, p, _ = strings.Cut(violation.Namespace(), ".")
		}
		m, written := r.marks[p]
		if !written || m.unknown || m.word || r.covered(p) {
			continue
		}
		r.bad[p] = true
		r.violation(p, m, violation.Tag())
	}
}

// violation says in words what a rule of the tag means.
func (r *reader) violation(path string, m mark, rule string) {
	f := *m.field
	at := r.position(m)
	is := fmt.Sprintf("%s is %s", path, r.Quoted(path))
	text := ""
	if m.value.Kind() == reflect.String {
		text = m.value.String()
	}
	empty := m.value.Kind() == reflect.String && text == "" || (f.kind == kindList || f.kind == kindMap) && m.value.Len() == 0
	switch {
	case empty && m.variable:
		r.report(at, "empty-value", path+" is "+shown(m.raw)+", which is empty", "give the variable a value, or remove the key")
	case empty && f.kind == kindList:
		r.report(at, "empty-list", path+" is an empty list", "write at least one entry, such as "+r.advice(f))
	case empty && f.key == "":
		r.report(at, "empty-value", path+" is empty", "write a text, such as "+r.advice(f)+removal(f))
	case empty:
		r.report(at, "empty-value", path+" is empty", "write "+r.advice(f))
	case f.kind == kindCount && f.limit("eq") != "":
		r.report(at, "bad-version", is+", and this program reads version "+f.limit("eq"), "write "+f.limit("eq"))
	case f.kind == kindCount:
		r.report(at, "bad-count", is+", which is out of range", "write a whole number"+span(f))
	case f.kind == kindDuration:
		r.report(at, "bad-duration", is+", which is out of range", "write a duration"+span(f)+", such as "+f.presetOr("5s"))
	case rule == "oneof":
		r.report(at, "bad-word", is, wordFix(f, text))
	default:
		format := r.formats[rule]
		why, fix := format.Trouble(text)
		if fix == "" {
			fix = format.Fix
		}
		if format.Place != nil {
			if offset := format.Place(text); offset >= 0 {
				at, is = r.inside(path, offset, is)
			}
		}
		r.report(at, format.Code, is+", "+why, fix)
	}
}

// inside is where in a text the trouble is, and the line that it is in where the text has several.
func (r *reader) inside(path string, offset int, is string) (problem.Position, string) {
	at := r.Inside(path, offset)
	m := r.marks[path]
	if m.variable || m.secret || m.node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		return at, is
	}
	return at, path + " has the line " + shown(strings.TrimSpace(r.lines()[at.Line-1]))
}

// twice reports the entries of a list that stand in it before. Every list of texts is a set.
func (r *reader) twice(path string, m mark) {
	first := map[string]mark{}
	for i := range m.value.Len() {
		p := indexed(path, i)
		entry := r.marks[p]
		text := m.value.Index(i).String()
		if entry.unknown || r.covered(p) {
			continue
		}
		if before, known := first[text]; known {
			r.bad[p] = true
			r.report(r.position(entry), "duplicate-entry", fmt.Sprintf("%s is %s, and so is an entry before it", p, r.Quoted(p)),
				"remove one of the two", r.position(before))
			continue
		}
		first[text] = entry
	}
}
