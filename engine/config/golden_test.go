// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the want.txt files of testdata")

// env is the environment of the golden cases.
func env(name string) (string, bool) {
	value, ok := map[string]string{
		"EMPTY":  "",
		"WORD":   "many",
		"NUMBER": "250",
		"SECRET": "postgres://app:hunter2%@db.example.com/shop",
		"NESTED": "${NUMBER}",
	}[name]
	return value, ok
}

// TestGolden compares everything that is said about each file of testdata. A folder is named after the
// code that it shows; what follows a dot tells several of one code apart. The folder fine holds files
// that have no problem at all.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*/consumers.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no case files: %v", err)
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cfg, problems := Parse("consumers.yaml", text, env)
			var got bytes.Buffer
			if len(problems) > 0 {
				got.WriteString(problems.Error() + "\n")
			}
			wantFile := filepath.Join(filepath.Dir(file), "want.txt")
			if *update {
				if err := os.WriteFile(wantFile, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(wantFile)
			if err != nil {
				t.Fatalf("%v; run: go test ./engine/config -run TestGolden -update", err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s: (-want +got)\n%s\nif this is meant, run: go test ./engine/config -run TestGolden -update", file, diff)
			}
			code, _, _ := strings.Cut(name, ".")
			if code == "fine" {
				if len(problems) > 0 || cfg == nil {
					t.Errorf("%s: got problems, want none", file)
				}
			} else if !strings.Contains(got.String(), "["+code+"]") {
				t.Errorf("%s: the code %s does not occur in\n%s", file, code, got.String())
			}
			if (cfg == nil) != (problems.Errors() > 0) {
				t.Errorf("%s: Config is nil %v, errors %d", file, cfg == nil, problems.Errors())
			}
		})
	}
}
