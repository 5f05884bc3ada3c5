// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// withURLFile parses a file that stands in folder and names a file.
func withURLFile(t *testing.T, folder, path string) *Config {
	t.Helper()
	cfg, problems := Parse(filepath.Join(folder, "consumers.yaml"), []byte(good+"database:\n  url_file: "+path+"\n"), env)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if cfg.Database.URL != "" {
		t.Fatal("parsing has read the file")
	}
	return cfg
}

// The url is what the file holds, without its last line end, wherever the file is seen from.
func TestURLFile(t *testing.T) {
	folder := t.TempDir()
	const url = "postgres://app:hunter2@db.example.com/shop"
	for text, want := range map[string]string{url: url, url + "\n": url, url + "\r\n": url, "host=db user='a b'\n": "host=db user='a b'"} {
		if err := os.WriteFile(filepath.Join(folder, "url"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"url", "./url", filepath.Join(folder, "url")} {
			cfg := withURLFile(t, folder, path)
			if problems := cfg.ReadURLFile(); len(problems) > 0 || cfg.Database.URL.Reveal() != want {
				t.Errorf("%q in %s gives %q, %v", text, path, cfg.Database.URL.Reveal(), problems)
			}
			if cfg.Database.Admin().Reveal() != want || cfg.Database.Listen().Reveal() != want {
				t.Errorf("%q: admin_url and listen_url do not fall back to it", text)
			}
			if problems := cfg.ReadURLFile(); len(problems) > 0 {
				t.Errorf("reading twice: %v", problems)
			}
		}
	}
}

// What is wrong with the file is said at the key, and nothing of the file is shown.
func TestURLFileProblems(t *testing.T) {
	folder := t.TempDir()
	files := map[string]string{
		"empty": "\n", "bad": "hunter2", "noise": "\xff\xfehunter2", "large": strings.Repeat("hunter2", MaxSize/7+1), "percent": "postgres://a:hunter2%@h/d",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, code := range map[string]string{
		"empty": "empty-file", "bad": "bad-url", "noise": "bad-encoding", "large": "file-too-large", "percent": "bad-url",
		"none": "no-file", ".": "not-a-file", "bad/deep": "unreadable-file", `"-"`: "no-file",
	} {
		cfg := withURLFile(t, folder, path)
		problems := cfg.ReadURLFile()
		if len(problems) != 1 || problems[0].Code != code || problems[0].At.Line != 7 || problems[0].At.Col != 13 || problems[0].Fix == "" {
			t.Errorf("%s: got %v, want %s at 7:13", path, problems, code)
		}
		if strings.Contains(problems.Error(), "hunter2") || cfg.Database.URL != "" {
			t.Errorf("%s: a secret is shown, or used: %v", path, problems)
		}
	}
}
