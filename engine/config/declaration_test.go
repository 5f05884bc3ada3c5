// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"strings"
	"testing"
)

// TestDeclarations walks every declared key: its tags are whole, its default is good, and its rules are
// known to the validator (a rule with a typo makes it panic, here and not at a user's).
func TestDeclarations(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var visit func(path string, typ reflect.Type)
	visit = func(path string, typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		checkRules(t, typ)
		for _, f := range fieldsOf(typ) {
			p := join(path, f.key)
			switch {
			case f.kind == 0:
				t.Errorf("%s has a Go type that no kind stands for", p)
			case f.doc == "" || !strings.HasSuffix(f.doc, "."):
				t.Errorf("%s: doc is %q, want a sentence", p, f.doc)
			case f.kind == kindCount && f.unit == "" && f.key != "version" && f.key != "priority":
				t.Errorf("%s is a count without a unit", p)
			case (f.kind == kindCount || f.kind == kindDuration) && span(f) == "":
				t.Errorf("%s has no range", p)
			case (f.kind == kindText || f.kind == kindTexts) && f.validate == "":
				t.Errorf("%s is a text without a rule", p)
			case f.required && f.preset != "":
				t.Errorf("%s is required and has a default", p)
			}
			if f.preset != "" {
				checkPreset(t, p, typ.Field(f.index), f)
			}
			if f.kind == kindSection || f.kind == kindSections {
				visit(p, f.typ)
			}
		}
	}
	visit("", reflect.TypeFor[Config]())
	if len(seen) != 11 {
		t.Errorf("walked %d structs, want 11", len(seen))
	}
}

// checkRules validates one instance of a type, with one entry in each list.
func checkRules(t *testing.T, typ reflect.Type) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s: a validate tag is wrong: %v", typ, p)
		}
	}()
	v := reflect.New(typ).Elem()
	for i := range typ.NumField() {
		if field := v.Field(i); field.Kind() == reflect.Slice && field.CanSet() {
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		}
	}
	_ = rules().Struct(v.Interface())
	for _, f := range fieldsOf(typ) {
		if f.validate != "" && f.kind != kindSection {
			_ = rules().Var(v.Field(f.index).Interface(), f.validate)
		}
	}
}

func checkPreset(t *testing.T, path string, sf reflect.StructField, f field) {
	t.Helper()
	v := reflect.New(sf.Type).Elem()
	set(v, f.kind, f.preset)
	if f.kind != kindSwitch && v.IsZero() {
		t.Errorf("%s: the default %q cannot be read", path, f.preset)
	}
	if f.validate != "" {
		if err := rules().Var(v.Interface(), f.validate); err != nil {
			t.Errorf("%s: the default %q is not allowed: %v", path, f.preset, err)
		}
	}
}

// TestInheritedRanges holds a consumer's own keys to the ranges of the defaults that they override.
func TestInheritedRanges(t *testing.T) {
	defaults := map[string]field{}
	for _, f := range fieldsOf(reflect.TypeFor[Defaults]()) {
		defaults["consumer."+f.key] = f
	}
	inherited := 0
	for _, f := range fieldsOf(reflect.TypeFor[Consumer]()) {
		if f.inherit == "" {
			continue
		}
		inherited++
		if from, ok := defaults[f.inherit]; !ok || span(from) != span(f) || from.unit != f.unit || from.kind != f.kind {
			t.Errorf("%s and %s differ in range, unit or kind", f.key, f.inherit)
		}
	}
	if inherited != len(defaults) {
		t.Errorf("%d of %d defaults can be overridden", inherited, len(defaults))
	}
}

// TestEveryFormatHasAGoodExample keeps the advice of a message from being refused itself.
func TestEveryFormatHasAGoodExample(t *testing.T) {
	for name, f := range formats {
		if why, _ := f.trouble(f.example); why != "" {
			t.Errorf("%s: the example %q is refused: %s", name, f.example, why)
		}
		if why, _ := f.trouble(""); why == "" {
			t.Errorf("%s: an empty text is accepted", name)
		}
		if f.code == "" || f.fix == "" {
			t.Errorf("%s has no code or no fix", name)
		}
	}
}
