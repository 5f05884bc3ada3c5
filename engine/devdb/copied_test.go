// SPDX-License-Identifier: Apache-2.0

package devdb

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A server that begins with the files of another one has its rows and its identity, and leaves the files alone.
func TestStartFromFiles(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	data := filepath.Join(m.bases[0], "kept")
	kept := mustStart(t, Options{Data: data}, m)
	const identity = `SELECT system_identifier::text FROM pg_control_system()`
	ask(t, kept.URL(Superuser, "postgres"), `CREATE TABLE t AS SELECT 'here'::text AS what`, `SELECT ''`)
	origin := ask(t, kept.URL(Superuser, "postgres"), identity)
	if err := kept.Stop(); err != nil {
		t.Fatal(err)
	}
	from := filepath.Join(data, clusterName)
	for range 2 {
		s := mustStart(t, Options{From: from}, m)
		url := s.URL(Superuser, "postgres")
		if got := ask(t, url, identity); got != origin {
			t.Errorf("the copy is %s, want %s", got, origin)
		}
		if got := ask(t, url, `SELECT string_agg(what, ',') FROM t`); got != "here" {
			t.Errorf("the copy holds %q, want the row of the origin", got)
		}
		ask(t, url, `INSERT INTO t VALUES ('in the copy')`, `SELECT ''`)
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// What holds no cluster, or one that would be shared, is refused, and nothing is left.
func TestStartFromOtherFiles(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	empty, strange, linked := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(strange, "PG_VERSION"), []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	major := mustStart(t, Options{}, m).bin.Major
	version := filepath.Join(linked, "PG_VERSION")
	if err := os.WriteFile(version, []byte(strconv.Itoa(major)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(empty, filepath.Join(linked, "pg_tblspc")); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{
		empty: "no such file", strange: `its PG_VERSION is "new\n"`, linked: "is neither a file nor a folder",
	} {
		s, err := start(t.Context(), Options{From: from}, m)
		if err == nil {
			_ = s.Stop()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start from %s = %v, want an error with %q", from, err, want)
		}
	}
	if _, err := start(t.Context(), Options{From: linked, Data: empty}, m); err == nil || !strings.Contains(err.Error(), "give one of them") {
		t.Errorf("with both: %v, want it refused", err)
	}
}
