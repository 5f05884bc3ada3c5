// SPDX-License-Identifier: Apache-2.0

package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestKinds holds the list of kinds to the source, both ways: each code that is reported is in it, and each
// that is in it is reported. Each has a case that shows it.
func TestKinds(t *testing.T) {
	var listed []string
	for _, kind := range Kinds() {
		listed = append(listed, kind.Code)
		if kind.Severity == 0 || !strings.HasSuffix(kind.Means, ".") {
			t.Errorf("%s: severity %d, means %q: want a severity and a sentence", kind.Code, kind.Severity, kind.Means)
		}
		cases, err := filepath.Glob("../*/testdata/" + kind.Code + "*/want.txt")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(cases, func(file string) bool {
			name, _, _ := strings.Cut(filepath.Base(filepath.Dir(file)), ".")
			return name == kind.Code
		}) {
			t.Errorf("%s has no case in a folder testdata/%s", kind.Code, kind.Code)
		}
	}
	if diff := cmp.Diff(codes(t), listed); diff != "" {
		t.Errorf("codes in the source, and kinds (-source +kinds)\n%s", diff)
	}
}

// codes lists every text of the source that has the shape of a code and stands where a code stands: as an
// argument of a call that reports, or as a field Code of a problem or a format.
func codes(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	shape := regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`)
	var found []string
	for _, file := range files {
		room := filepath.Base(filepath.Dir(file))
		if strings.HasSuffix(file, "_test.go") || room != "config" && room != "document" {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			for _, e := range candidates(n) {
				literal, ok := e.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					continue
				}
				if text, err := strconv.Unquote(literal.Value); err == nil && shape.MatchString(text) {
					found = append(found, text)
				}
			}
			return true
		})
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// candidates are the expressions of a node that stand where a code stands.
func candidates(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		name := ""
		switch f := n.Fun.(type) {
		case *ast.SelectorExpr:
			name = f.Sel.Name
		case *ast.Ident:
			name = f.Name
		}
		if slices.Contains([]string{"report", "refuse", "warn", "Refuse", "Warn", "conflict"}, name) {
			return n.Args
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Code" {
			return []ast.Expr{n.Value}
		}
	}
	return nil
}
