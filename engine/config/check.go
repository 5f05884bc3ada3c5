// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/go-playground/validator/v10"

	"example.com/bothy/engine/problem"
)

// rules is the validator with the formats of this package. It is built once: it caches what it learns of
// each struct, and it is safe for many goroutines.
var rules = sync.OnceValue(func() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string { return f.Tag.Get("yaml") })
	for name, f := range formats {
		// It fails for an empty name or a nil function only.
		_ = v.RegisterValidation(name, func(level validator.FieldLevel) bool {
			why, _ := f.trouble(level.Field().String())
			return why == ""
		})
	}
	return v
})

// check applies the validate tags to what was read, and then the rules that concern two values.
func (r *reader) check(cfg *Config) {
	r.violations("", rules().Struct(cfg))
	// A tag that begins with omitempty also passes a zero that somebody wrote.
	for _, path := range r.order {
		m := r.marks[path]
		if m.field == nil || !m.field.optional || !m.value.IsZero() {
			continue
		}
		own, _, _ := strings.Cut(m.field.validate, ",dive")
		r.violations(path, rules().Var(m.value.Interface(), own))
	}
	for _, path := range r.order {
		if m := r.marks[path]; m.field != nil && m.field.kind == kindTexts {
			r.twice(path, m)
		}
	}
	r.sameNames(cfg)
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
		if !written || m.unknown || r.covered(p) {
			continue
		}
		r.bad[p] = true
		r.violation(p, m, violation.Tag())
	}
}

// covered reports whether a path or a part of the file around it has a problem already, so that one more
// would only repeat it.
func (r *reader) covered(path string) bool {
	for p := path; p != ""; p = parent(p) {
		if r.bad[p] {
			return true
		}
	}
	return false
}

// violation says in words what a rule of the tag means.
func (r *reader) violation(path string, m mark, rule string) {
	f := *m.field
	at := r.position(m)
	is := fmt.Sprintf("%s is %s", path, r.quoted(path))
	empty := m.value.Kind() == reflect.String && m.value.String() == "" || m.value.Kind() == reflect.Slice && m.value.Len() == 0
	switch {
	case empty && m.variable:
		r.report(at, "empty-value", path+" is "+shown(m.raw)+", which is empty", "give the variable a value, or remove the key")
	case empty && f.kind == kindTexts || empty && f.kind == kindSections:
		r.report(at, "empty-list", path+" is an empty list", "write at least one entry, such as "+advice(f))
	case empty:
		r.report(at, "empty-value", path+" is empty", "write "+advice(f))
	case f.kind == kindCount && f.key == "version":
		r.report(at, "bad-version", is+", and this program reads version 1", "write 1")
	case f.kind == kindCount:
		r.report(at, "bad-count", is+", which is out of range", "write a whole number"+span(f))
	case f.kind == kindDuration:
		r.report(at, "bad-duration", is+", which is out of range", "write a duration"+span(f)+", such as "+f.presetOr("5s"))
	case rule == "oneof":
		r.report(at, "bad-word", is, wordFix(f, m.value.String()))
	default:
		format := formats[rule]
		why, fix := format.trouble(m.value.String())
		if fix == "" {
			fix = format.fix
		}
		r.report(at, format.code, is+", "+why, fix)
	}
}

// twice reports the entries of a list that stand in it before. Every list of texts is a set.
func (r *reader) twice(path string, m mark) {
	first := map[string]mark{}
	for i := range m.value.Len() {
		p := fmt.Sprintf("%s[%d]", path, i)
		entry := r.marks[p]
		text := m.value.Index(i).String()
		if entry.unknown || r.covered(p) {
			continue
		}
		if before, known := first[text]; known {
			r.report(r.position(entry), "duplicate-entry", fmt.Sprintf("%s is %s, and so is an entry before it", p, r.quoted(p)),
				"remove one of the two", r.position(before))
			continue
		}
		first[text] = entry
	}
}

// sameNames refuses two consumers of one name: they would share one cursor, and each would lose the events
// that the other took. The same job kind in two consumers is allowed: the tag of a job tells them apart.
func (r *reader) sameNames(cfg *Config) {
	first := map[string]problem.Position{}
	for i, c := range cfg.Consumers {
		path := fmt.Sprintf("consumers[%d].name", i)
		m, written := r.marks[path]
		if !written || m.unknown || c.Name == "" {
			continue
		}
		if before, known := first[c.Name]; known {
			r.report(r.position(m), "duplicate-name", fmt.Sprintf("%s is %s, and so is that of another consumer; both would move one cursor", path, r.quoted(path)),
				"give one of the two another name", before)
			continue
		}
		first[c.Name] = r.position(m)
	}
}

// wordFix lists the allowed words, the nearest first.
func wordFix(f field, text string) string {
	words := strings.Fields(f.limit("oneof"))
	list := "write " + alternatives(words)
	if f.word != "" {
		// A word in place of a mapping; its keys are the other way to write it.
		keys := strings.Split(keysOf(f.typ), ", ")
		words = append([]string{f.word}, keys...)
		list = fmt.Sprintf("write the word %s, or a mapping with one of %s", f.word, strings.Join(keys, ", "))
	}
	near := problem.Nearest(text, words)
	if len(text) < 3 && !strings.EqualFold(near, text) {
		near = "" // too short to guess: no is one slip away from on, and means the opposite
	}
	switch {
	case near != "" && near == f.word:
		return fmt.Sprintf("did you mean %q? %s", near, list)
	case near != "" && f.word != "":
		return fmt.Sprintf("write a mapping, such as {%s: ...}; or %s", near, strings.TrimPrefix(list, "write "))
	case near != "" && near != text:
		return fmt.Sprintf("did you mean %q? %s", near, list)
	default:
		return list
	}
}

func alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// example shows how a field may be written, in one line. An entry of a list has no key.
func example(f field) string {
	value := exampleValue(f)
	if f.key == "" {
		return value
	}
	return f.key + ": " + value
}

// advice is the example, and the other way to write the field where there is one.
func advice(f field) string {
	if f.word != "" {
		return example(f) + ", or a mapping with one of " + keysOf(f.typ)
	}
	return example(f)
}

func exampleValue(f field) string {
	switch {
	case f.limit("eq") != "":
		return f.limit("eq")
	case f.word != "":
		return f.word
	case f.preset != "":
		return f.preset
	case f.limit("oneof") != "":
		return alternatives(strings.Fields(f.limit("oneof")))
	}
	for rule := range strings.SplitSeq(f.validate, ",") {
		if format, ok := formats[rule]; ok && f.kind == kindTexts {
			return "[" + format.example + "]"
		} else if ok {
			return format.example
		}
	}
	switch f.kind { // a text, a list of texts and a switch are answered above
	case kindSection:
		return exampleSection(f.typ)
	case kindSections:
		return "[" + exampleSection(f.typ) + "]"
	case kindDuration:
		return "5s"
	default:
		return "100"
	}
}

// exampleSection writes the keys that a section must have, or the first that has a default.
func exampleSection(t reflect.Type) string {
	var parts []string
	fields := fieldsOf(t)
	for _, f := range fields {
		if f.required {
			parts = append(parts, example(f))
		}
	}
	for i := 0; i < len(fields) && len(parts) == 0; i++ {
		if fields[i].preset != "" || i == len(fields)-1 {
			parts = append(parts, example(fields[i]))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// removal is the other way to mend a key without a value.
func removal(f field) string {
	switch {
	case f.key == "":
		return ", or remove the entry"
	case f.required:
		return ""
	default:
		return ", or remove the key"
	}
}
