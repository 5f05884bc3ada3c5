// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mend = "run: go generate ./..."

// TestPagesAreFresh: every page says what the rooms declare, and no page is left that nobody writes.
func TestPagesAreFresh(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	var written []string
	for _, p := range pages() {
		written = append(written, p.path)
		want, err := p.text(root)
		if err != nil {
			t.Errorf("%s: %v", p.path, err)
			continue
		}
		got, err := os.ReadFile(filepath.Join(root, folder, p.path))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s/%s is stale; %s", folder, p.path, mend)
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains(written, entry.Name()) {
			t.Errorf("%s/%s is written by nobody: remove it, or add it to pages in cmd/reference/main.go", folder, entry.Name())
		}
	}
}

// A kind with one code is declared once, or twice with the same words.
func TestCodesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, kind := range kinds() {
		if seen[kind.Code] {
			t.Errorf("the code %s is declared twice, with different words", kind.Code)
		}
		seen[kind.Code] = true
	}
}

// What cannot be seen in a case is written out.
func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"a: b\n": "a: b\n", "a": "a\n", "\ufeffa\n": "\\uFEFFa\n", "a\u00a0b\r\n": "a\\u00A0b\\r\n", "\xff\n": "\\xFF\n", "\t\u200b\n": "\\t\\u200B\n", "é\n": "é\n",
	} {
		if got := visible(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
