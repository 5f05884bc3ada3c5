// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package devdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Killed owners get no chance to clean up. Tied is Linux as it is; untied is a system without a signal at
// the end of a parent, where the server lives on until the next Start.
func TestKilledOwner(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		untied, keep bool
	}{
		{"tied", false, false},
		{"untied", true, false},
		{"tied and kept", false, true},
		{"untied and kept", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			order := helperOrder{Base: m.bases[0], Untied: tc.untied}
			if tc.keep {
				order.Data = filepath.Join(newBase(t), "data")
			}
			cmd, killed := startHelper(t, os.Args[0], order, nil)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // says that it was killed
			switch {
			case tc.untied && !serves(killed.PID, killed.Dir):
				t.Fatalf("the server (pid %d) ended with its owner, and the test is about one that does not", killed.PID)
			case !tc.untied:
				eventually(t, "the server ends after its owner", func() bool { return !serves(killed.PID, killed.Dir) })
			}

			s := mustStart(t, Options{Data: order.Data}, m)
			if _, err := os.Stat(killed.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s after the next start: %v, want that it is gone", killed.Dir, err)
			}
			if serves(killed.PID, killed.Dir) {
				t.Errorf("pid %d of the killed owner still runs after the next start", killed.PID)
			}
			if got := ask(t, s.URL(Superuser, "postgres"), "SELECT 'up'"); got != "up" {
				t.Errorf("the new server: got %q, want up", got)
			}
		})
	}
}

// The sweep removes what has no owner, and nothing else.
func TestSweepLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	owned, err := newHome(m.bases, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := owned.remove(); err != nil {
			t.Error(err)
		}
	}()
	dead, err := newHome(m.bases, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	// The number in the file belongs to a living process that has nothing to do with it: this test.
	if err := os.Mkdir(dead.data(), 0o700); err != nil {
		t.Fatal(err)
	}
	pidFile := fmt.Sprintf("%d\n%s\n1\n5432\n%s\n\n", os.Getpid(), dead.data(), dead.dir)
	if err := os.WriteFile(filepath.Join(dead.data(), "postmaster.pid"), []byte(pidFile), 0o600); err != nil {
		t.Fatal(err)
	}
	dead.lock.Close()
	ground := yard(m.bases[0])
	for _, dir := range []string{"db-empty", "db-with/something", "other"} {
		if err := os.MkdirAll(filepath.Join(ground, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sweep(m.bases, t.Output())
	var got []string
	entries, err := os.ReadDir(ground)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	want := []string{filepath.Base(owned.dir), "db-with", "gate", "other"}
	if diff := cmp.Diff(want, got, cmp.Transformer("set", func(in []string) map[string]bool {
		out := make(map[string]bool)
		for _, s := range in {
			out[s] = true
		}
		return out
	})); diff != "" {
		t.Errorf("what a sweep leaves (-want +got):\n%s", diff)
	}
}

// A deep TMPDIR leaves no room for the path of a socket.
func TestSocketPathTooLong(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	deep := filepath.Join(newBase(t), strings.Repeat("deep/", 20))
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	short := m.bases[0]
	m.bases = []string{deep, short}
	s := mustStart(t, Options{}, m)
	if !strings.HasPrefix(s.Dir(), short) {
		t.Errorf("folder of the server: got %s, want one under %s", s.Dir(), short)
	}
	m.bases = []string{deep}
	if _, err := start(t.Context(), Options{}, m); err == nil || !strings.Contains(err.Error(), "set TMPDIR to a shorter folder") {
		t.Errorf("start with no other folder: got %v, want the hint about TMPDIR", err)
	}
	wantNoHomes(t, deep)
}

// Someone else may have made the folder that this user's servers go to.
func TestYardOfSomeoneElse(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if err := os.Mkdir(yard(m.bases[0]), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(yard(m.bases[0]), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := newHome(m.bases, nil, false); err == nil || !strings.Contains(err.Error(), "only this user can write to") {
		t.Errorf("home in a folder that all can write to: got %v, want a refusal", err)
	}
}
