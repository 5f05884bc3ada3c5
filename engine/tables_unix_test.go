// SPDX-License-Identifier: Apache-2.0

//go:build unix

package engine_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"example.com/bothy/engine"
)

// TestCheckDefinitionsNeverWaits is case 13: a pipe, a directory and a huge file with the name of a table end
// at once and take no memory.
func TestCheckDefinitionsNeverWaits(t *testing.T) {
	dir := definitionsFolder(t, nil)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "huge.yaml"), bytes.Repeat([]byte("a: [b]\n"), 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := engine.CheckDefinitions(dir)
	runtime.ReadMemStats(&after)
	if got, want := codes(r.Problems), "not-a-file too-large no-file not-a-file"; got != want {
		t.Errorf("got codes %q, want %q:\n%v", got, want, r.Problems)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 50<<20 {
		t.Errorf("it allocated %d MB, want less than 50", used>>20)
	}
	if got := codes(engine.CheckDefinitions(filepath.Join(dir, "nowhere")).Problems); got != "no-file" {
		t.Errorf("a folder that does not exist: got codes %q, want no-file", got)
	}
	if got := codes(engine.CheckDefinitions(filepath.Join(dir, "huge.yaml")).Problems); got != "unreadable-file" {
		t.Errorf("a file as the folder: got codes %q, want unreadable-file", got)
	}
}
