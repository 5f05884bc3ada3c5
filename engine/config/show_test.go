// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What Show prints is read again as the same configuration, secrets aside, and shows none of them.
func TestShowIsReadAgain(t *testing.T) {
	files, err := filepath.Glob("testdata/fine*/consumers.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range append(files, "testdata/show/all.yaml", "../../consumers.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cfg, problems := Parse("consumers.yaml", text, showEnv)
		if err := problems.Err(); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		shown := cfg.Show()
		again, problems := Parse("consumers.yaml", shown, showEnv)
		if err := problems.Err(); err != nil {
			t.Fatalf("%s: what is shown cannot be read: %v\n%s", file, err, shown)
		}
		if diff := cmp.Diff(cfg, again, cmpopts.IgnoreUnexported(Config{}), cmpopts.IgnoreFields(Database{}, "URL", "AdminURL", "ListenURL")); diff != "" {
			t.Errorf("%s: read again it differs (-want +got)\n%s\n%s", file, diff, shown)
		}
		asJSON, err := cfg.ShowJSON()
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{string(shown), string(asJSON)} {
			if strings.Contains(text, "hunter2") {
				t.Errorf("%s: a secret is shown:\n%s", file, text)
			}
		}
	}
}

func showEnv(name string) (string, bool) {
	if name == "BOTHY_DATABASE_URL" {
		return "postgres://app:hunter2@db.example.com/shop", true
	}
	return env(name)
}

// TestShow compares everything that is shown of one file with a value of each origin.
func TestShow(t *testing.T) {
	text, err := os.ReadFile("testdata/show/all.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, problems := Parse("consumers.yaml", text, showEnv)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	asJSON, err := cfg.ShowJSON()
	if err != nil {
		t.Fatal(err)
	}
	for file, got := range map[string][]byte{"testdata/show/want.txt": cfg.Show(), "testdata/show/want.json": asJSON} {
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%v; run: go test ./engine/config -run TestShow -update", err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s\nif this is meant, run: go test ./engine/config -run TestShow -update", file, diff)
		}
	}
}
