// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FuzzParse: no text makes the reader panic, hang, contradict itself or lose a position.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*/consumers.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "../../consumers.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		begin := time.Now()
		cfg, problems := Parse("consumers.yaml", text, env)
		if took := time.Since(begin); took > 20*time.Second {
			t.Fatalf("%d bytes took %v: %q", len(text), took, text)
		}
		if (cfg == nil) != (problems.Errors() > 0) {
			t.Fatalf("%q: Config is nil %v with %d errors", text, cfg == nil, problems.Errors())
		}
		lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text)), "\n")
		for _, p := range problems {
			if p.At.Line < 1 || p.At.Col < 1 || p.At.Line > len(lines) || p.At.Col > len([]rune(lines[p.At.Line-1]))+1 {
				t.Fatalf("%q: a problem at %v, outside of the text: %v", text, p.At, p)
			}
			if p.Code == "" || p.What == "" || strings.HasSuffix(p.What, ".") || strings.Contains(p.String(), "hunter2%") {
				t.Fatalf("%q: a bad message: %v", text, p)
			}
		}
		if cfg == nil {
			return
		}
		for _, c := range cfg.Consumers {
			if c.Name == "" || c.Job.Kind == "" || c.Batch < 1 || c.PollInterval <= 0 || c.MaxJobsPerRound < 1 || c.Recipients.Rule == "" {
				t.Fatalf("%q: an incomplete consumer: %+v", text, c)
			}
		}
	})
}

// FuzzTrimQuery: what is left of a query can stand in parentheses, and is left alone the second time.
func FuzzTrimQuery(f *testing.F) {
	for _, text := range []string{"SELECT 1 FROM batch;", "WITH a AS (SELECT 1) SELECT $q$;$q$ FROM batch -- b", `SELECT E'\'' FROM "batch" /* /* */ */ ; `} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		query, why, _ := trimQuery(text)
		if why != "" {
			return
		}
		again, why, _ := trimQuery("SELECT * FROM (" + query + ") r")
		if why != "" || !strings.HasSuffix(again, ") r") {
			t.Fatalf("%q gives %q, which does not stand in parentheses: %s", text, query, why)
		}
		if twice, why, _ := trimQuery(query); twice != query || why != "" {
			t.Fatalf("%q gives %q, and that gives %q (%s)", text, query, twice, why)
		}
	})
}
