// SPDX-License-Identifier: Apache-2.0

package devdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	keptLock    = "bothy.lock" // also the mark that says the folder is ours
	clusterName = "cluster"
	halfCluster = "cluster.new"
)

// kept is a folder that outlives the server:
//
//	bothy.lock  cluster/  postgres.log
//
// The cluster is made under another name and renamed when it is whole, so that a process that is killed in
// between leaves no half of one.
type kept struct {
	dir   string
	major int // of the cluster in it, 0 when there is none yet
	lock  *os.File
}

func (k *kept) cluster() string { return filepath.Join(k.dir, clusterName) }

// openKept takes a folder for this process, making it when it is missing.
func openKept(dir string, account *account) (*kept, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("folder for the database: %w", err)
	}
	if err := makeReachable(filepath.Dir(dir)); err != nil {
		return nil, fmt.Errorf("folder for the database: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("folder for the database: %w", err)
	}
	// Before anything in it is touched: what belongs to somebody else stays theirs.
	if err := checkOwner(dir, account); err != nil {
		return nil, err
	}
	if err := checkOurs(dir); err != nil {
		return nil, err
	}
	lock, held, err := takeLock(filepath.Join(dir, keptLock), os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("folder for the database: %w", err)
	}
	if !held {
		return nil, fmt.Errorf("%w: the database in %s is being served by another process: stop that one first, or name another folder", ErrInUse, dir)
	}
	k := &kept{dir: dir, lock: lock}
	if err := k.open(account); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return k, nil
}

func (k *kept) open(account *account) error {
	if err := account.owns(k.dir); err != nil {
		return fmt.Errorf("folder for the database: %w", err)
	}
	if err := account.reaches(k.dir); err != nil {
		return fmt.Errorf("folder for the database: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(k.cluster(), "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("version of the database that is kept: %w", err)
	}
	k.major, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || k.major < 1 {
		return fmt.Errorf("%s/PG_VERSION says %q, which is no version of PostgreSQL: name another folder", k.cluster(), firstLine(string(text)))
	}
	return nil
}

// checkOwner refuses a folder that belongs neither to this user nor to the account that the server runs as.
// Root could take it over, and its owner could then no longer use it.
func checkOwner(dir string, account *account) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("folder for the database: %w", err)
	}
	uid, _, known := ownerOf(info)
	if !known || int(uid) == os.Geteuid() || (account != nil && uid == account.uid) {
		return nil
	}
	owner := "the user with the number " + strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		owner = "user " + u.Username
	}
	return fmt.Errorf("%s belongs to %s: run this as that user, or name another folder", dir, owner)
}

// checkOurs refuses a folder with something in it that this package did not make.
func checkOurs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("folder for the database: %w", err)
	}
	other := ""
	for _, e := range entries {
		switch e.Name() {
		case keptLock:
			return nil
		case "PG_VERSION":
			return fmt.Errorf("%s holds a PostgreSQL cluster that was not made here, and this server has no passwords: "+
				"name an empty folder, or serve that one yourself and set BOTHY_TEST_SERVER_URL", dir)
		case "lost+found": // an empty file system
		default:
			other = e.Name()
		}
	}
	if other != "" {
		return fmt.Errorf("%s is not empty (it holds %s) and no database of this program: name an empty or new folder", dir, other)
	}
	return nil
}

// prepare makes the cluster when there is none yet.
func (k *kept) prepare(ctx context.Context, bin Binaries, account *account, durable bool) error {
	if k.major != 0 {
		return nil
	}
	half := filepath.Join(k.dir, halfCluster)
	if err := os.RemoveAll(half); err != nil {
		return fmt.Errorf("removal of a database that was never finished: %w", err)
	}
	if err := initdb(ctx, bin, half, account, durable); err != nil {
		return errors.Join(err, os.RemoveAll(half))
	}
	return os.Rename(half, k.cluster())
}
