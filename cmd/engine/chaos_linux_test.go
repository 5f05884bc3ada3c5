// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// children are the processes that a process has started, with their command lines.
func children(t *testing.T, parent int) map[int]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			found[pid] = commandLine(pid)
		}
	}
	return found
}

// commandLine is empty for a process that has ended, also when nobody has waited for it yet.
func commandLine(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(string(text), "\x00", " ")
}

// However a chaos run ends, its engines and its PostgreSQL end with it, frozen ones too.
func TestChaosLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"interrupted": syscall.SIGINT, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			config := filepath.Join(dir, "own.yaml")
			if err := os.WriteFile(config, []byte("version: 1\nconsumers:\n  - {name: all, job: {kind: own.all}, recipients: none}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			var stderr lastWords
			cmd := exec.CommandContext(t.Context(), filepath.Join(binary(t), "engine"), "dev", "--chaos", "--seed", "3", "--config", config)
			cmd.Env = append(os.Environ(), serverVariable+"=")
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var all map[int]string
			eventually(t, "two engines and PostgreSQL are there", func() bool {
				all = children(t, cmd.Process.Pid)
				lines := fmt.Sprint(all)
				return strings.Count(lines, chaosEngineName) == chaosEngines && strings.Contains(lines, "postgres")
			})
			for pid, line := range all {
				if strings.Contains(line, chaosEngineName) {
					if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
						t.Fatal(err)
					}
					break
				}
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			err := cmd.Wait()
			var ended *exec.ExitError
			if !errors.As(err, &ended) {
				t.Fatalf("the run ended with %v, want an error", err)
			}
			for pid, line := range all {
				eventually(t, fmt.Sprintf("process %d (%s) is gone", pid, line), func() bool { return commandLine(pid) != line })
			}
			if signal != syscall.SIGINT {
				return // its folder is removed by the next server that starts
			}
			if got := stderr.String(); ended.ExitCode() != exitRefused || !strings.Contains(got, "engine: interrupted before every event was verified") ||
				!strings.Contains(got, "seed 3: the same things go wrong in the same order with --chaos --seed 3") {
				t.Errorf("exit code %d, and it said\n%s", ended.ExitCode(), got)
			}
			for _, line := range all {
				if _, folder, ok := strings.Cut(line, " -k "); ok {
					folder, _, _ = strings.Cut(folder, " ")
					if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
						t.Errorf("the folder %s of PostgreSQL: %v, want it gone", folder, err)
					}
				}
			}
		})
	}
}
