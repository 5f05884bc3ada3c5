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

// stub makes programs that only know their version.
func stub(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"postgres", "initdb"} {
		script := fmt.Sprintf("#!/bin/sh\necho '%s (PostgreSQL) %s'\n", name, version)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	dir := newBase(t)
	at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	packaged := stub(t, at("lib", "15", "bin"), "15.18")
	newer := stub(t, at("lib", "18", "bin"), "18.4")
	old := stub(t, at("lib", "9.6", "bin"), "9.6.24")
	cached := stub(t, at("cache", "17.1", "bin"), "17.1")
	onPath := stub(t, at("real", "16", "bin"), "16.9")
	odd := stub(t, at("odd"), "unknown")
	links := at("links")
	if err := os.Mkdir(links, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(onPath, "postgres"), filepath.Join(links, "postgres")); err != nil {
		t.Fatal(err)
	}
	globs := []string{at("lib", "*", "bin")}
	for _, tc := range []struct {
		name  string
		named string
		m     machine
		major int
		want  string // a folder, or part of an error
	}{
		{"named", packaged, machine{env: env(EnvBin, newer), globs: globs}, 0, packaged},
		{"named, not there", at("none"), machine{env: env(), globs: globs}, 0, "is of no use: stat " + at("none")},
		{"variable", "", machine{env: env(EnvBin, cached, "PATH", links), globs: globs}, 0, cached},
		{"variable, too old", "", machine{env: env(EnvBin, old), globs: globs}, 0, EnvBin + `, "` + old + `", is of no use: it is PostgreSQL 9.6.24, and 15`},
		{"link on PATH", "", machine{env: env("PATH", at("none")+":"+links), globs: globs}, 0, onPath},
		{"newest package", "", machine{env: env(), globs: globs, cache: at("cache")}, 0, newer},
		{"cache last", "", machine{env: env(), cache: at("cache")}, 0, cached},
		{"the version of a kept cluster", "", machine{env: env("PATH", links), globs: globs}, 15, packaged},
		{"no such version", "", machine{env: env("PATH", links), globs: globs}, 14, "programs found of version 14 on this machine"},
		{"says no version", "", machine{env: env("PATH", odd)}, 0, `says "postgres (PostgreSQL) unknown", which names no version`},
		{"nothing", "", machine{env: env()}, 0, "apt-get install postgresql; macOS: brew install postgresql@18"},
		{"nothing, other ways", "", machine{env: env()}, 0, "set BOTHY_TEST_SERVER_URL"},
	} {
		got, err := find(tc.named, tc.m, nil, tc.major)
		switch {
		case filepath.IsAbs(tc.want) && (err != nil || got.Bin != tc.want):
			t.Errorf("%s: got %+v, %v, want %s", tc.name, got, err, tc.want)
		case !filepath.IsAbs(tc.want) && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: got %+v, %v, want an error with %q", tc.name, got, err, tc.want)
		}
	}
}

func TestNothingFound(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.env, m.globs, m.cache = env(), nil, ""
	for _, fetch := range []bool{false, true} {
		_, err := start(t.Context(), Options{Fetch: fetch}, m)
		if !errors.Is(err, ErrNotFound) || errors.Is(err, ErrNoFetch) != fetch {
			t.Errorf("start on an empty machine, fetch %v: got %v, want ErrNotFound, and ErrNoFetch: %v", fetch, err, fetch)
		}
	}
	wantNoHomes(t, m.bases[0])
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		line, version string
		major         int
		ok            bool
	}{
		{"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", "15.18", 15, true},
		{"postgres (PostgreSQL) 18.4\n", "18.4", 18, true},
		{"postgres (PostgreSQL) 19beta1\n", "19beta1", 19, true},
		{"postgres (PostgreSQL) 9.6.24\n", "9.6.24", 9, true},
		{"postgres (PostgreSQL) devel\n", "", 0, false},
		{"postgres (PostgreSQL) 99999.1\n", "", 0, false},
		{"initdb (PostgreSQL) 15.18\n", "", 0, false},
		{"", "", 0, false},
	} {
		version, major, ok := parseVersion(tc.line)
		if ok != tc.ok || (ok && (version != tc.version || major != tc.major)) {
			t.Errorf("parseVersion(%q): got %q, %d, %v, want %q, %d, %v", tc.line, version, major, ok, tc.version, tc.major, tc.ok)
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n")
	f.Fuzz(func(t *testing.T, line string) {
		version, major, ok := parseVersion(line)
		if ok && (major < 1 || !strings.HasPrefix(strings.TrimLeft(version, "0"), fmt.Sprint(major))) {
			t.Errorf("parseVersion(%q): got %q, %d, want a version that starts with its major", line, version, major)
		}
	})
}

func FuzzParsePIDFile(f *testing.F) {
	f.Add([]byte("4711\n/data\n1790000000\n5432\n/run/db-1\n\n  5432001  3\nready   \n"))
	f.Add([]byte("-4711\n\n\n\n\n"))
	f.Add([]byte("1\n/data\n1\n5432\n/run\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		// A pid of 1, 0 or below means "init", "my group" or "everything" to kill.
		if pid, socket := parsePIDFile(text); pid != 0 && pid <= 1 || pid == 0 && socket != "" {
			t.Errorf("parsePIDFile(%q): got %d, %q, want a pid above 1 or nothing", text, pid, socket)
		}
	})
}
