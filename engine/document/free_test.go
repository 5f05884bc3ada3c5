// SPDX-License-Identifier: Apache-2.0

package document

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Any value becomes the JSON that its author means.
func TestFreeValues(t *testing.T) {
	for text, want := range map[string]string{
		"a":                               `"a"`,
		`"010"`:                           `"010"`,
		"12345678901234567890123":         `12345678901234567890123`,
		"9007199254740993":                `9007199254740993`,
		"-1.50":                           `-1.50`,
		"1e400":                           `1e400`,
		"2026-01-02":                      `"2026-01-02"`,
		"2026-01-02T03:04:05Z":            `"2026-01-02T03:04:05Z"`,
		"1:30":                            `"1:30"`,
		"10.0.0.1":                        `"10.0.0.1"`,
		"~":                               `null`,
		"null":                            `null`,
		"nULL":                            `"nULL"`,
		"true":                            `true`,
		"'true'":                          `"true"`,
		"[]":                              `[]`,
		"{}":                              `{}`,
		"[1, [a, {b: }]]":                 `[1,["a",{"b":null}]]`,
		"{z: 1, a: <&>}":                  `{"z":1,"a":"<&>"}`,
		"{<<: {a: 1, b: 2}, a: 3}":        `{"a":3,"b":2}`,
		"[&x {a: 1}, *x]":                 `[{"a":1},{"a":1}]`,
		"\"\\0\"":                         `"\u0000"`,
		"${NAME}":                         `"${NAME}"`,
		"\"${NAME}\"":                     `"${NAME}"`,
		"|\n  two\n  lines":               `"two\nlines\n"`,
		"{'1': a, \"no\": b}":             `{"1":"a","no":"b"}`,
		"-":                               `[null]`,
		"{a: {b: {c: [{d: 1}, {d: 2}]}}}": `{"a":{"b":{"c":[{"d":1},{"d":2}]}}}`,
	} {
		input := "version: 1\ncontent: " + text + "\n"
		if text == "-" {
			input = "version: 1\ncontent:\n  -\n"
		}
		into, _ := mustRead(t, input)
		if got := into.Content.String(); got != want || !json.Valid([]byte(got)) {
			t.Errorf("%s gives %s, want %s", text, got, want)
		}
	}
}

// What two readers would take for different things is refused at its place.
func TestFreeValuesRefused(t *testing.T) {
	for text, want := range map[string]string{
		"010":               "2:10 bad-value",
		"1_000":             "2:10 bad-value",
		"0x1F":              "2:10 bad-value",
		"0o17":              "2:10 bad-value",
		"+1":                "2:10 bad-value",
		".5":                "2:10 bad-value",
		"5.":                "2:10 bad-value",
		".inf":              "2:10 bad-value",
		"yes":               "2:10 bad-value",
		"Off":               "2:10 bad-value",
		"True":              "2:10 bad-value",
		"[a, [b, 08]]":      "2:18 bad-value",
		"{a: {a: 1, a: 2}}": "2:21 duplicate-key",
		"{1: a}":            "2:11 bad-key",
		"{~: a}":            "2:11 bad-key",
		"{no: a}":           "2:11 bad-key",
		"{[a]: b}":          "2:11 wrong-kind",
		"{a: !!str 1}":      "2:14 yaml-tag",
		"!!binary aGk=":     "2:10 yaml-tag",
		"&a [b, *a]":        "2:17 bad-yaml",
		"":                  "2:9 missing-value",
	} {
		_, _, problems := parcels.Read("parcel.yaml", []byte("version: 1\ncontent: "+text+"\n"), nil)
		var got []string
		for _, p := range problems {
			got = append(got, fmt.Sprintf("%d:%d %s", p.At.Line, p.At.Col, p.Code))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("content: %s\ngot  %s\nwant %s\n%v", text, strings.Join(got, ", "), want, problems)
		}
	}
}

// An alias repeats neither values nor bytes without end.
func TestFreeValuesAreBounded(t *testing.T) {
	long := "version: 1\ncontent: [&a " + strings.Repeat("x", 500_000) + strings.Repeat(", *a", 1000) + "]\n"
	many := "version: 1\ncontent: [&a0 [x]"
	for i := range 9 {
		many += fmt.Sprintf(", &a%d [*a%d%s]", i+1, i, strings.Repeat(fmt.Sprintf(", *a%d", i), 9))
	}
	for name, text := range map[string]string{"bytes": long, "values": many + "]\n"} {
		into, _, problems := parcels.Read("parcel.yaml", []byte(text), nil)
		if into != nil || len(problems) != 1 || problems[0].Code != "too-many-aliases" {
			t.Errorf("%s: got %v, want one too-many-aliases", name, problems)
		}
	}
}
