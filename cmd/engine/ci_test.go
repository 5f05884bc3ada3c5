// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const ciPage = "../../docs/ci.md"

// TestCIPageShowsWhatIsPrinted runs the example of the page: the JSON that it shows is the one that is printed, and it
// explains every key.
func TestCIPageShowsWhatIsPrinted(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(ciPage)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "consumers.yaml"), []byte(block(t, page, "For this file", "yml")), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(binary(t), "engine"), "validate", "--format", "json")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	printed, err := cmd.Output()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != exitRefused {
		t.Fatalf("the example ends with %v, want exit code %d\n%s", err, exitRefused, printed)
	}
	shown := block(t, page, "`engine validate --format json` prints", "json")
	if *update {
		page = strings.Replace(page, "```json\n"+shown+"```", "```json\n"+string(printed)+"```", 1)
		if err := os.WriteFile(ciPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		shown = string(printed)
	}
	if diff := cmp.Diff(shown, string(printed)); diff != "" {
		t.Errorf("docs/ci.md shows other JSON than is printed (-shown +printed)\n%s\nrun: go test ./cmd/engine -run TestCIPage -update", diff)
	}
	var document any
	if err := json.Unmarshal(printed, &document); err != nil {
		t.Fatal(err)
	}
	paths := pathsOf(document, "")
	if len(paths) < 20 {
		t.Errorf("the example has the keys %q: it should have all", paths)
	}
	for _, path := range paths {
		name := path
		if path == "tables" || path == "summary" || strings.HasPrefix(path, "problems[].also.") {
			name = path[strings.LastIndexByte(path, '.')+1:] // explained with what is in it, or beside its parent
		}
		if !strings.Contains(page, "`"+name) {
			t.Errorf("docs/ci.md does not explain the key %s", path)
		}
	}
}

// block is the text between the fences of the first block of a language behind a sentence.
func block(t *testing.T, page, behind, language string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, behind)
	_, rest, open := strings.Cut(rest, "```"+language+"\n")
	text, _, closed := strings.Cut(rest, "```")
	if !found || !open || !closed {
		t.Fatalf("docs/ci.md has no block of %s behind %q", language, behind)
	}
	return text
}

// pathsOf lists the keys of a document.
func pathsOf(value any, path string) []string {
	var paths []string
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			below := strings.TrimPrefix(path+"."+key, ".")
			paths = append(append(paths, below), pathsOf(inner, below)...)
		}
	case []any:
		for _, inner := range value {
			paths = append(paths, pathsOf(inner, path+"[]")...)
		}
	}
	return paths
}
