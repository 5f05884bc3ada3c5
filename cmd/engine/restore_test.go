// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRunbookIsRun: a command of docs/restore.md that no script runs may be wrong on the day on which it is needed.
func TestRunbookIsRun(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	script, makefile := read("testdata/database/runbook.txtar"), read("../../Makefile")
	commands := 0
	for _, block := range regexp.MustCompile("(?ms)^```(sh|sql)\n(.*?)^```$").FindAllStringSubmatch(read("../../docs/restore.md"), -1) {
		for line := range strings.SplitSeq(strings.TrimSpace(block[2]), "\n") {
			commands++
			var run bool
			word, isMake := strings.CutPrefix(line, "make ")
			switch {
			case isMake:
				run = strings.Contains(makefile, "\n"+word+":")
			case block[1] == "sql":
				run = strings.Contains(script, "'"+strings.TrimSuffix(line, ";")+"'")
			default:
				run = regexp.MustCompile(`(?m)^exits [01] ` + regexp.QuoteMeta(line) + `$`).MatchString(script)
			}
			if !run {
				t.Errorf("docs/restore.md has the command %q, and testdata/database/runbook.txtar (or the Makefile) does not", line)
			}
		}
	}
	if commands < 12 {
		t.Errorf("found %d commands in docs/restore.md, want all of them", commands)
	}
}

// A file is written whole or not at all, only its owner may read it, and nothing is left beside it.
func TestWriteWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "final.json")
	for _, text := range []string{"first", "second"} {
		if err := writeWhole(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		info, statErr := os.Stat(name)
		if err != nil || statErr != nil || string(got) != text || info.Mode().Perm() != 0o600 {
			t.Errorf("got %q with mode %v, %v, %v, want %q with mode 0600", got, info.Mode(), err, statErr, text)
		}
	}
	taken := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(taken, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeWhole(taken, []byte("third")); err == nil {
		t.Error("a folder was overwritten")
	}
	if err := writeWhole(filepath.Join(dir, "nowhere", "final.json"), nil); err == nil {
		t.Error("wrote into a folder that is not there")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left %v, %v, want the file and the folder alone", entries, err)
	}
}
