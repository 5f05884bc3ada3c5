// SPDX-License-Identifier: Apache-2.0

package devdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// EnvBin names the environment variable that says which folder of PostgreSQL programs to use.
const EnvBin = "BOTHY_POSTGRES_BIN"

const oldestMajor = 15

// Binaries are the programs of one PostgreSQL.
type Binaries struct {
	Bin     string // absolute path of the folder that holds postgres and initdb
	Version string // such as 15.18
	Major   int    // such as 15
}

// ErrNotFound is what Find and Start return when no usable PostgreSQL is on this machine. Its text says how
// to install one.
var ErrNotFound = errors.New("no PostgreSQL server programs found")

// machine is what devdb knows of the machine it runs on; tests hand in another one.
type machine struct {
	env   func(string) string
	globs []string // folders where packages put the programs, best first
	cache string   // where Fetch puts a version; empty when there is no place
	bases []string // folders that may hold temporary servers, best first
	// untied starts servers without a signal at the end of their owner, as on systems that have none.
	untied bool
}

func thisMachine() machine {
	return machine{
		env: os.Getenv,
		globs: []string{
			"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
			"/usr/pgsql-*/bin",                   // PostgreSQL's own packages for Red Hat
			"/usr/libexec/postgresql*",           // Alpine
			"/opt/homebrew/opt/postgresql@*/bin", // Homebrew, Apple silicon
			"/usr/local/opt/postgresql@*/bin",    // Homebrew, Intel
			"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
			"/opt/homebrew/opt/postgresql/bin",
			"/Applications/Postgres.app/Contents/Versions/*/bin",
		},
		cache: cacheDir(),
		bases: baseDirs(),
	}
}

// cacheDir is where fetched versions are kept. A home of root is closed to the account that the server
// runs as, so root has another place.
func cacheDir() string {
	if os.Geteuid() == 0 {
		return "/var/cache/bothy/postgres"
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "bothy", "postgres")
}

// Find looks for the programs of PostgreSQL 15 or later: Options.Bin; the folder that BOTHY_POSTGRES_BIN
// names; PATH; the folders of the usual packages, newest first; what Fetch has fetched. A folder that was
// named must be usable; of the others the first usable one is taken. Nothing is downloaded.
func Find(o Options) (Binaries, error) {
	account, err := runAs()
	if err != nil {
		return Binaries{}, err
	}
	return find(o.Bin, thisMachine(), account, 0)
}

// find is Find for a machine, for the account that will run the server, and for one major version (0 is
// any).
func find(named string, m machine, account *account, major int) (Binaries, error) {
	source := "the folder that was asked for"
	if named == "" {
		named, source = m.env(EnvBin), EnvBin
	}
	if named != "" {
		bin, err := inspect(named, account, major)
		if err != nil {
			return Binaries{}, fmt.Errorf("%s, %q, is of no use: %w", source, named, err)
		}
		return bin, nil
	}
	var passed []string
	for _, dir := range candidates(m) {
		bin, err := inspect(dir, account, major)
		if err == nil {
			return bin, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			passed = append(passed, fmt.Sprintf("\n    passed over %s: %v", dir, err))
		}
	}
	return Binaries{}, notFound(major, passed)
}

func notFound(major int, passed []string) error {
	want := ""
	if major != 0 {
		want = fmt.Sprintf(" of version %d", major)
	}
	return fmt.Errorf("%w%s on this machine%s\n"+
		"    fix: install them (Debian, Ubuntu: sudo apt-get install postgresql; macOS: brew install postgresql@18),\n"+
		"         or set %s to the folder that holds postgres and initdb,\n"+
		"         or set BOTHY_TEST_SERVER_URL to use a server that runs already",
		ErrNotFound, want, strings.Join(passed, ""), EnvBin)
}

// candidates are the folders worth a look, best first.
func candidates(m machine) []string {
	var dirs []string
	for _, dir := range filepath.SplitList(m.env("PATH")) {
		if !filepath.IsAbs(dir) {
			continue // a relative entry would mean another program in another folder
		}
		// A link such as /usr/local/bin/postgres leads to the folder that holds initdb and the libraries.
		if resolved, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres")); err == nil {
			dirs = append(dirs, filepath.Dir(resolved), dir)
		}
	}
	globs := m.globs
	if m.cache != "" {
		globs = append(slices.Clone(globs), filepath.Join(m.cache, "*", "bin"))
	}
	for _, glob := range globs {
		found, _ := filepath.Glob(glob) // the only error is a bad pattern, and they are ours
		slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(lastNumber(b), lastNumber(a)) })
		dirs = append(dirs, found...)
	}
	seen := make(map[string]bool)
	return slices.DeleteFunc(dirs, func(dir string) bool {
		again := seen[dir]
		seen[dir] = true
		return again
	})
}

var numbers = regexp.MustCompile(`\d+`)

// lastNumber is the version that a path such as /usr/lib/postgresql/15/bin speaks of: the first number of
// the last part that has one.
func lastNumber(path string) int {
	for dir := path; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if s := numbers.FindString(filepath.Base(dir)); s != "" {
			n, _ := strconv.Atoi(s) // too long a number is as good as none
			return n
		}
	}
	return 0
}

// inspect says whether a folder holds programs that the account can run.
func inspect(dir string, account *account, major int) (Binaries, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Binaries{}, err
	}
	for _, name := range []string{"postgres", "initdb"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			return Binaries{}, err
		}
		if err := account.reaches(path); err != nil {
			return Binaries{}, err
		}
	}
	version, number, err := versionOf(filepath.Join(dir, "postgres"))
	switch {
	case err != nil:
		return Binaries{}, err
	case number < oldestMajor:
		return Binaries{}, fmt.Errorf("it is PostgreSQL %s, and %d is the oldest that is supported", version, oldestMajor)
	case major != 0 && number != major:
		return Binaries{}, fmt.Errorf("it is PostgreSQL %s, and version %d is needed", version, major)
	}
	return Binaries{Bin: dir, Version: version, Major: number}, nil
}

func versionOf(postgres string) (string, int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fastLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, postgres, "--version")
	cmd.Env = childEnv()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", 0, fmt.Errorf("%s --version: %w: %s", postgres, err, firstLine(string(out)))
	}
	version, major, ok := parseVersion(string(out))
	if !ok {
		return "", 0, fmt.Errorf("%s --version says %q, which names no version", postgres, firstLine(string(out)))
	}
	return version, major, nil
}

var versionLine = regexp.MustCompile(`^postgres \([^)]*\) ((\d{1,4})(?:[.a-z][.\w]*)?)(?:\s|$)`)

// parseVersion reads a line such as "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)".
func parseVersion(line string) (version string, major int, ok bool) {
	m := versionLine.FindStringSubmatch(line)
	if m == nil {
		return "", 0, false
	}
	major, err := strconv.Atoi(m[2])
	return m[1], major, err == nil && major > 0
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
