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
)

func TestKeptDataSurvives(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	data := filepath.Join(newBase(t), "deep", "data")
	// What a killed initdb leaves must not stay in the way.
	if err := os.MkdirAll(filepath.Join(data, halfCluster, "base"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, keptLock), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := "kept"
	for i, durable := range []bool{true, false} {
		s, err := start(t.Context(), Options{Data: data, Durable: durable}, m)
		if err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		url := s.URL(Superuser, "postgres")
		if i == 0 {
			ask(t, url, "CREATE TABLE t AS SELECT 'kept' AS word", "SELECT word FROM t")
		}
		if got := ask(t, url, "SELECT word FROM t"); got != want {
			t.Errorf("start %d: got %q, want %q", i, got, want)
		}
		if got, want := ask(t, url, "SHOW fsync"), map[bool]string{true: "on", false: "off"}[durable]; got != want {
			t.Errorf("start %d, durable %v: fsync is %q, want %q", i, durable, got, want)
		}
		if _, err := start(t.Context(), Options{Data: data}, m); !errors.Is(err, ErrInUse) {
			t.Errorf("a second start on %s: got %v, want ErrInUse", data, err)
		}
		if err := s.Stop(); err != nil {
			t.Errorf("stop %d: %v", i, err)
		}
	}
	wantNoHomes(t, m.bases[0])
}

func TestKeptDataRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"not empty", map[string]string{"diary.txt": "dear diary"}, "is not empty (it holds diary.txt)"},
		{"a cluster of someone else", map[string]string{"PG_VERSION": "15\n"}, "was not made here"},
		{"another major version", map[string]string{keptLock: "", "cluster/PG_VERSION": "99\n"}, "of version 99 on this machine"},
		{"no version", map[string]string{keptLock: "", "cluster/PG_VERSION": "many\n"}, `says "many", which is no version`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.env = pathOnly // BOTHY_POSTGRES_BIN has another text
			data := newBase(t)
			for name, text := range tc.files {
				path := filepath.Join(data, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			_, err := start(t.Context(), Options{Data: data}, m)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("start on %v: got %v, want %q", tc.files, err, tc.want)
			}
			for name, text := range tc.files {
				if got, err := os.ReadFile(filepath.Join(data, name)); err != nil || string(got) != text {
					t.Errorf("%s afterwards: got %q, %v, want it untouched", name, got, err)
				}
			}
			wantNoHomes(t, m.bases[0])
		})
	}
}

// A folder behind a closed one cannot be reached by the account that root hands the server to.
func TestClosedFolder(t *testing.T) {
	t.Parallel()
	closed := newBase(t)
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	stranger := &account{name: "stranger", uid: 4_000_000_000, gid: 4_000_000_000}
	inside := filepath.Join(closed, "data")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	err := stranger.reaches(inside)
	if want := fmt.Sprintf("%s has mode 0700, so that user stranger", closed); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("reaches(%s): got %v, want %q", inside, err, want)
	}
	if err := os.Chmod(closed, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := stranger.reaches(inside); err != nil {
		t.Errorf("reaches(%s) after chmod 0711: %v", inside, err)
	}
	var same *account
	if err := same.reaches("/does/not/matter"); err != nil {
		t.Errorf("this process's own account: %v, want no question asked", err)
	}
}

func pathOnly(name string) string {
	if name == "PATH" {
		return os.Getenv(name)
	}
	return ""
}

// A folder of another user keeps its owner: root could take it, and its owner would have lost it.
func TestKeptFolderOfAnotherUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := checkOwner(dir, nil); err != nil {
		t.Errorf("checkOwner of my own folder: got %v, want nil", err)
	}
	if os.Geteuid() == 0 {
		const stranger = 54321
		if err := os.Chown(dir, stranger, stranger); err != nil {
			t.Fatal(err)
		}
		if err := checkOwner(dir, &account{uid: stranger}); err != nil {
			t.Errorf("checkOwner of a folder of the server's account: got %v, want nil", err)
		}
		_, err := openKept(dir, &account{name: "nobody", uid: 65534, gid: 65534})
		wantRefused(t, err, "belongs to the user with the number 54321: run this as that user")
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if uid, _, _ := ownerOf(info); uid != stranger {
			t.Errorf("owner of %s: got %d, want %d", dir, uid, stranger)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 0 {
			t.Errorf("entries of %s: got %v %v, want none", dir, entries, err)
		}
		return
	}
	_, err := openKept("/", nil) // of root, on every machine
	wantRefused(t, err, "belongs to user root")
}

func wantRefused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error that holds %q", err, want)
	}
}
