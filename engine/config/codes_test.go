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
)

// codes lists every text of the source that has the shape of a code and stands where a code stands: as an
// argument of a call, or as a field code.
func codes(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(file string) bool {
		return !strings.HasPrefix(file, "../config/") && !strings.HasPrefix(file, "../document/")
	})
	shape := regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`)
	var found []string
	add := func(e ast.Expr) {
		literal, ok := e.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return
		}
		if text, err := strconv.Unquote(literal.Value); err == nil && shape.MatchString(text) && !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			for _, e := range candidates(n) {
				add(e)
			}
			return true
		})
	}
	if len(found) < 30 {
		t.Fatalf("found only %d codes: the search is broken", len(found))
	}
	slices.Sort(found)
	return found
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
		if slices.Contains([]string{"report", "refuse", "warn", "Refuse", "Warn"}, name) {
			return n.Args
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "code") {
			return []ast.Expr{n.Value}
		}
	}
	return nil
}
