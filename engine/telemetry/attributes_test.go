// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/bothy/engine/telemetry"
)

// logMethods are the methods of a logger, with the place of the first attribute; messages stand before it.
var logMethods = map[string]int{
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1,
	"DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "LogAttrs": 3, "Log": 3,
}

// attributeMakers are the functions of slog that make an attribute from a key.
var attributeMakers = []string{"String", "Int", "Int64", "Uint64", "Float64", "Bool", "Time", "Duration", "Any", "Group"}

// sources parses the Go files of the engine and its command that are no tests.
func sources(t *testing.T) (files []*ast.File, set *token.FileSet) {
	t.Helper()
	set = token.NewFileSet()
	for _, folder := range []string{"engine", "cmd/engine"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			files = append(files, file)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(files) < 50 {
		t.Fatalf("%d files: the walk is broken", len(files))
	}
	return files, set
}

// constants are the constants of the packages that hold a text, by name. Two packages that give one name to two
// texts give both.
func constants(files []*ast.File) map[string][]string {
	found := map[string][]string{}
	for _, file := range files {
		for _, d := range file.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				value, ok := spec.(*ast.ValueSpec)
				if !ok {
					continue
				}
				for i, name := range value.Names {
					if i < len(value.Values) {
						if text, ok := literalText(value.Values[i]); ok {
							found[name.Name] = append(found[name.Name], text)
						}
					}
				}
			}
		}
	}
	return found
}

func literalText(e ast.Expr) (string, bool) {
	basic, ok := e.(*ast.BasicLit)
	if !ok || basic.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(basic.Value)
	return text, err == nil
}

// keyTexts are the texts that an expression can be: a literal, or constants of that name.
func keyTexts(e ast.Expr, known map[string][]string) []string {
	switch e := e.(type) {
	case *ast.Ident:
		return known[e.Name]
	case *ast.SelectorExpr:
		return known[e.Sel.Name]
	}
	if text, ok := literalText(e); ok {
		return []string{text}
	}
	return nil
}

// loggedKeys are the expressions of a call that stand for the key of an attribute.
func loggedKeys(call *ast.CallExpr) (keys []ast.Expr) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	if on, ok := method.X.(*ast.Ident); ok && on.Name == "slog" && slices.Contains(attributeMakers, method.Sel.Name) && len(call.Args) > 0 {
		return call.Args[:1]
	}
	first, logs := logMethods[method.Sel.Name]
	if !logs || !isLogger(method.X) {
		return nil
	}
	for i := first; i < len(call.Args); i++ {
		if _, made := call.Args[i].(*ast.CallExpr); made {
			continue // an attribute, whose maker is looked at itself
		}
		if call.Ellipsis.IsValid() && method.Sel.Name == "LogAttrs" {
			continue // attributes, whose makers are looked at themselves
		}
		keys = append(keys, call.Args[i])
		i++ // its value
	}
	return keys
}

func isLogger(e ast.Expr) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	}
	return strings.HasSuffix(strings.ToLower(name), "logger") || name == "slog"
}

// Only listed attributes are logged, and every listed one is.
func TestLogAttributes(t *testing.T) {
	t.Parallel()
	files, set := sources(t)
	known, used := constants(files), map[string]bool{}
	var allowed []string
	for _, a := range telemetry.LogAttributes() {
		allowed = append(allowed, a.Name)
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for _, key := range loggedKeys(call) {
				texts := keyTexts(key, known)
				if len(texts) == 0 {
					t.Errorf("%s: the key of an attribute is neither a text nor a constant", set.Position(key.Pos()))
				}
				for _, text := range texts {
					used[text] = true
					if !slices.Contains(allowed, text) {
						t.Errorf("%s: the log attribute %q is not listed: add it to LogAttributes with its meaning, when it can hold no content", set.Position(key.Pos()), text)
					}
				}
			}
			return true
		})
	}
	for _, name := range allowed {
		if !used[name] {
			t.Errorf("the listed log attribute %q is used nowhere", name)
		}
	}
}

// The search finds a key in each form in which one is written.
func TestLogAttributesCanFail(t *testing.T) {
	t.Parallel()
	const code = `package p
func f() {
	logger.InfoContext(ctx, "message", "payload", 1, slog.String("recipient", r))
	h.logger.LogAttrs(ctx, level, message, slog.Any(attrX, v))
	other.Info("no logger", "not a key")
}`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", code, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			for _, key := range loggedKeys(call) {
				got = append(got, keyTexts(key, map[string][]string{"attrX": {"x"}})...)
			}
		}
		return true
	})
	if want := []string{"payload", "recipient", "x"}; !slices.Equal(got, want) {
		t.Errorf("found the keys %q, want %q", got, want)
	}
}
