// SPDX-License-Identifier: Apache-2.0

//go:build unix

package config

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// Load looks before it opens.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "consumers.yaml")
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "large.yaml"), make([]byte, MaxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.yaml")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		cfg, problems := Load(path, env)
		if len(problems) > 0 || cfg.File() != path || !slices.Equal(cfg.Names(), []string{"archive"}) {
			t.Errorf("Load(%s): problems %v", path, problems)
		}
	}
	pipe := filepath.Join(dir, "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, code := range map[string]string{
		dir: "not-a-file", pipe: "not-a-file", os.DevNull: "not-a-file",
		filepath.Join(dir, "none.yaml"):  "no-file",
		filepath.Join(file, "deep.yaml"): "unreadable-file",
		filepath.Join(dir, "large.yaml"): "file-too-large",
		"":                               "no-file",
	} {
		cfg, problems := Load(path, env)
		if cfg != nil || !slices.Equal(places(problems), []string{"1:1 " + code}) {
			t.Errorf("Load(%s): got %v, want %s at 1:1", path, problems, code)
		}
	}
}
