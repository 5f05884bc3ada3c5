// SPDX-License-Identifier: Apache-2.0

package diagram_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine"
)

// TestPagesAreTrue holds what the documents show of the round to its table.
func TestPagesAreTrue(t *testing.T) {
	explained := func() ([]byte, error) {
		page, err := os.ReadFile("../../docs/round.md")
		if err != nil {
			return nil, err
		}
		return engine.RoundExplained(page)
	}
	for _, p := range []struct {
		path string
		make func() ([]byte, error)
	}{
		{"../../docs/reference/round.md", engine.RoundReference},
		{"../../docs/reference/round.svg", engine.RoundPicture},
		{"../../docs/round.md", explained},
	} {
		got, err := p.make()
		if err != nil {
			t.Fatalf("%s: %v", p.path, err)
		}
		if flag.Lookup("update").Value.String() == "true" {
			if err := os.MkdirAll(filepath.Dir(p.path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p.path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(p.path)
		if err != nil {
			t.Fatalf("%v\nwrite it with: go test ./engine/diagram -update", err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is stale (-there +from the table):\n%s\nmend it with: go test ./engine/diagram -update", p.path, diff)
		}
	}
}
