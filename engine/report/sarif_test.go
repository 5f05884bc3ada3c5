// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	_ "github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif" // carries the JSON Schema of SARIF 2.1.0
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaText is the schema as the standard has it. The module that carries it shows it only to its own types, which
// drop what they do not know; a document has to be held against the schema as it was written. So the text is read out of
// the module's source, whose version and content go.mod and go.sum fix.
func schemaText(t *testing.T) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "schema.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if s, err := strconv.Unquote(literal.Value); err == nil && strings.Contains(s, sarifSchema) {
				text = s
			}
		}
		return true
	})
	if text == "" {
		t.Fatalf("the module's schema.go does not hold the schema %s", sarifSchema)
	}
	return text
}

// sarifValidator checks documents against the schema.
func sarifValidator(t *testing.T) func([]byte) error {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(schemaText(t)))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(sarifSchema, document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile(sarifSchema)
	if err != nil {
		t.Fatal(err)
	}
	return func(written []byte) error {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(written))
		if err != nil {
			return err
		}
		return schema.Validate(value)
	}
}

func TestSARIFIsValid(t *testing.T) {
	validate := sarifValidator(t)
	for name, r := range map[string]Report{
		"sample": sample(), "empty": {},
		"odd names": {Files: []File{{Name: "a b%c\n\xff:d"}}, Problems: sample().Problems, Kinds: sample().Kinds},
	} {
		document := Render(r, SARIF)
		if err := validate(document); err != nil {
			t.Errorf("%s: %v in\n%s", name, err, document)
		}
	}
	for old, broken := range map[string]string{`"startColumn": 1`: `"startColumn": 0`, `"columnKind": "unicodeCodePoints"`: `"columnKind": "runes"`, `"roles"`: `"role"`} {
		document := bytes.Replace(Render(sample(), SARIF), []byte(old), []byte(broken), 1)
		if validate(document) == nil {
			t.Errorf("a document with %s is valid: the check is broken", broken)
		}
	}
}
