// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

// compiledSchema is the schema as an editor would load it.
func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("the schema is no JSON: %v\n%s", err, text)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("consumers.schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("consumers.schema.json")
	if err != nil {
		t.Fatalf("the schema does not compile: %v", err)
	}
	if schema.DraftVersion != 2020 {
		t.Errorf("the schema is of draft %d, want 2020-12", schema.DraftVersion)
	}
	return schema
}

// decoded is a file as an editor hands it to a schema.
func decoded(t *testing.T, file string) (any, bool) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	return value, yaml.Unmarshal(bytes.TrimPrefix(text, []byte("\ufeff")), &value) == nil
}

// TestConfigSchemaBuilds compiles the schema, accepts with it every file that validate accepts, and refuses
// those mistakes that a schema can see.
func TestConfigSchemaBuilds(t *testing.T) {
	schema := compiledSchema(t)
	files, err := filepath.Glob("testdata/*/consumers.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no case files: %v", err)
	}
	for _, file := range append(files, "../../consumers.yaml", "testdata/show/all.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if cfg, _ := Parse("consumers.yaml", text, showEnv); cfg == nil {
			continue
		}
		if value, ok := decoded(t, file); !ok {
			t.Errorf("%s: no YAML to another reader", file)
		} else if err := schema.Validate(value); err != nil {
			t.Errorf("%s is accepted by validate, and the schema says: %v", file, err)
		}
	}
	for _, name := range []string{
		"bad-choice", "bad-count", "bad-count.version", "bad-count.zero", "bad-duration", "bad-handler", "bad-kind", "bad-label", "bad-name",
		"bad-queue", "bad-schema", "bad-switch", "bad-version", "bad-word", "bad-word.rule", "duplicate-entry", "empty-list", "missing-key",
		"missing-value", "unknown-key", "wrong-kind.consumers", "wrong-kind.top", "long-list",
	} {
		file := filepath.Join("testdata", name, "consumers.yaml")
		if value, ok := decoded(t, file); !ok || schema.Validate(value) == nil {
			t.Errorf("%s is accepted by the schema", file)
		}
	}
}

// TestSchemaHasEveryKey: the schema names each key with what it is for.
func TestSchemaHasEveryKey(t *testing.T) {
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	reference := Reference()
	for _, key := range []string{"pool_max_conns", "partitions_ahead", "batch_size", "max_attempts", "recipients", "producers"} {
		if !bytes.Contains(text, []byte(`"`+key+`": {`)) {
			t.Errorf("the schema does not know %s", key)
		}
		if !bytes.Contains(reference, []byte("| `"+key+"` |")) {
			t.Errorf("the reference does not know %s", key)
		}
	}
}

// A pattern of the schema never refuses what validate accepts.
func FuzzPatterns(f *testing.F) {
	for _, format := range formats {
		f.Add(format.Example)
	}
	f.Add("orders|notify")
	f.Add("a·b")
	f.Fuzz(func(t *testing.T, text string) {
		for name, format := range formats {
			if why, _ := format.Trouble(text); why == "" && format.Pattern != "" && !regexp.MustCompile(format.Pattern).MatchString(text) {
				t.Errorf("%s: %q is accepted, and does not match %s", name, text, format.Pattern)
			}
			if strings.HasPrefix(format.Pattern, "^") == (format.Pattern == "") {
				t.Errorf("%s: the pattern %s is not anchored", name, format.Pattern)
			}
		}
	})
}
