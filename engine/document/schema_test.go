// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

// The schema of a grammar with every kind of field accepts what Read accepts, and refuses what a schema can
// tell.
func TestSchema(t *testing.T) {
	text, err := parcels.Schema()
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("parcel.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("parcel.json")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"version: 1":                            true,
		"version: 1\nstops: none\nweight: 1000": true,
		"version: 1\nstops: [{city: Ulm, weight: 2, note: [1, {a: b}]}]": true,
		"version: 1\nnamed: {a: {city: A}}\nrows: {t: [{id: 1, x: ~}]}":  true,
		"version: 1\ncontent: {a: [1, 2]}\nlabels: [a, b]":               true,
		"version: ${V}\nweight: ${W}\nstops: ${S}":                       true,
		"version: 2":                     false,
		"version: 1\nstops: nobody":      false,
		"version: 1\nstops: [{}]":        false,
		"version: 1\nnamed: [a]":         false,
		"version: 1\nnamed: {a: {b: c}}": false,
		"version: 1\nrows: {t: {id: 1}}": false,
		"version: 1\nweight: 1001":       false,
		"version: 1\nlabels: [a, a]":     false,
		"version: 1\nother: 1":           false,
	} {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); (err == nil) != want {
			t.Errorf("%s\nthe schema says %v, want accepted %v", text, err, want)
		}
		lookup := func(name string) (string, bool) {
			return map[string]string{"V": "1", "W": "2", "S": "none"}[name], true
		}
		if into, _, problems := parcels.Read("parcel.yaml", []byte(text), lookup); (into != nil) != want {
			t.Errorf("%s\nRead says %v, want accepted %v", text, problems, want)
		}
	}
}

// The reference page has a table for each section, and a row for each key.
func TestReference(t *testing.T) {
	page := string(parcels.Reference())
	for _, want := range []string{
		"## The file\n", "## `stops[]`\n", "## `named[]`\n", "| `weight` | number | `3` | 1 to 1000 | grams | 0.1 | The weight. |",
		"| `stops` | `none`, or a list of mappings |  | 1 to 9 entries |  | 0.1 | Where it stops. |", "| `weight` | number | `weight` | 1 to 1000 |",
		"| `rows` | mapping of names to lists of mappings of names to any values |", "| `content` | any value |", "| `key` | secret |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no\n%s\nin\n%s", want, page)
		}
	}
}
