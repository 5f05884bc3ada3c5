// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestWords(t *testing.T) {
	t.Parallel()
	type w = word
	for rule, want := range map[string][]word{
		"":                                nil,
		"SELECT b.seq":                    {{name: "select", place: 1}, {name: "seq", schema: "b", place: 8}},
		"public . F (1)":                  {{name: "f", schema: "public", place: 1, called: true}},
		`"Odd ""one"""."X"()`:             {{name: "X", schema: `Odd "one"`, place: 1, called: true}},
		"'f()' /* g() */ h() -- i()":      {{name: "h", place: 17, called: true}},
		"$$f()$$ $x$ g() $x$ h()":         {{name: "h", place: 21, called: true}},
		`E'it\'s f()' g()`:                {{name: "g", place: 14, called: true}},
		"'\u00fc\U0001f600' \u00fcber(1)": {{name: "\u00fcber", place: 6, called: true}},
		"a.b.c":                           {{name: "c", schema: "b", place: 1}},
		"x1$ 2y":                          {{name: "x1$", place: 1}, {name: "y", place: 6}},
	} {
		if diff := cmp.Diff(want, words(rule), cmp.AllowUnexported(w{})); diff != "" {
			t.Errorf("words(%q) (-want +got):\n%s", rule, diff)
		}
	}
}

// Whatever is in a rule, every word of it lies inside.
func FuzzWords(f *testing.F) {
	for _, seed := range []string{"SELECT b.seq, w.id::text FROM batch b", `"a"".b`, "$$", "/*", "'", "a.\"", "\xff.\xfe(", "$a$b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rule string) {
		last := 0
		for _, w := range words(rule) {
			if w.place <= last || w.place > utf8.RuneCountInString(rule) {
				t.Fatalf("words(%q): %+v after place %d", rule, w, last)
			}
			last = w.place
		}
	})
}

func TestPlace(t *testing.T) {
	t.Parallel()
	const rule = "SELECT \u00fc"
	s := Store{schema: `"b\u00fcro"`}
	statement, _ := s.ruleStatement(rule, nil)
	before := utf8.RuneCountInString(statement) - utf8.RuneCountInString(rule+ruleEnd)
	for position, want := range map[int]int{0: 0, 1: 0, before: 0, before + 1: 1, before + 8: 8, before + 9: 0, before + 100: 0} {
		if got := place(statement, rule, int32(position)); got != want { //nolint:gosec // small
			t.Errorf("place of position %d of %q: got %d, want %d", position, statement, got, want)
		}
	}
}

func TestComparedColumns(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		alias, condition string
		columns          []string
		wrapped          string
	}{
		"plain":            {"l", "(l.id = event_log.seq)", []string{"id"}, ""},
		"quoted":           {"l", `("L".x = l."Odd ""one""" AND l.id > 1 AND xl.no = a.l.nor)`, []string{`Odd "one"`, "id"}, ""},
		"alias in letters": {"L", `("L".x = l.y)`, []string{"x"}, ""},
		"a cast":           {"l", "((l.type)::text = event_log.type)", []string{"type"}, ""},
		"a call":           {"l", "(lower(l.type) = event_log.type)", nil, "lower(type)"},
		"a cast in a call": {"l", "(lower((l.type)::text) = event_log.type)", nil, "..."},
		"two arguments":    {"l", "(shop.label(l.type, 1) = event_log.type)", nil, "..."},
	} {
		columns, wrapped := comparedColumns(tt.alias, []string{tt.condition})
		if diff := cmp.Diff(tt.columns, columns); diff != "" || wrapped != tt.wrapped {
			t.Errorf("%s: %s of %s: wrapped %q, want %q; columns (-want +got):\n%s", name, tt.condition, tt.alias, wrapped, tt.wrapped, diff)
		}
	}
}

func TestNearestTable(t *testing.T) {
	t.Parallel()
	known := []table{{"Shop", "Lines"}, {"public", "orders"}, {"public", "watchers"}, {"shop", "items"}}
	for name, want := range map[string]string{
		"public.watcher": "public.watchers", "watcher": "public.watchers", "shop.watchers": "public.watchers", "itmes": "shop.items",
		"nothing_like_it": "", "": "", "shop.lines": `"Shop"."Lines"`, "lines": `"Shop"."Lines"`, "shop.items": "",
	} {
		if got := nearestTable(name, known); got != want {
			t.Errorf("nearestTable(%q): got %q, want %q", name, got, want)
		}
	}
}
