// SPDX-License-Identifier: Apache-2.0

package devdb

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	homePrefix = "db-"
	lockName   = "lock"
	logName    = "postgres.log"
	// enoughMemory is what /dev/shm must have free before a server goes there. In a container it is often
	// 64 MiB, which one cluster fills.
	enoughMemory = 1 << 30
	sharedMemory = "/dev/shm"
)

// home is the folder of one running server. Whoever holds its lock owns it.
type home struct {
	dir  string
	lock *os.File
}

// data is the cluster of a throwaway server, or a link to the folder that is kept.
func (h *home) data() string { return filepath.Join(h.dir, "data") }

// remove deletes the folder, and its lock last: until then nobody else may take it for abandoned.
func (h *home) remove() error {
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		return errors.Join(err, h.lock.Close())
	}
	var errs []error
	for _, e := range entries {
		if e.Name() != lockName {
			errs = append(errs, os.RemoveAll(filepath.Join(h.dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, h.lock.Close())
	}
	return errors.Join(os.RemoveAll(h.dir), h.lock.Close())
}

// baseDirs are the folders that may hold homes. All of them are swept; newHome takes the first that fits.
func baseDirs() []string {
	dirs := []string{sharedMemory, os.TempDir()}
	if os.TempDir() != "/tmp" {
		dirs = append(dirs, "/tmp") // a long TMPDIR leaves no room for the name of a socket
	}
	return dirs
}

// yard is the folder under a base that holds this user's homes.
func yard(base string) string { return filepath.Join(base, "bothy-"+strconv.Itoa(os.Geteuid())) }

// newHome makes a home that is locked from the first moment on.
func newHome(bases []string, account *account, memory bool) (*home, error) {
	var errs []error
	for _, base := range bases {
		if base == sharedMemory && !(memory && freeBytes(base) >= enoughMemory) {
			continue
		}
		h, err := newHomeIn(base, account)
		if err == nil {
			return h, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no folder can hold a temporary server: %w", errors.Join(errs...))
}

func newHomeIn(base string, account *account) (*home, error) {
	if err := account.reaches(base); err != nil {
		return nil, err
	}
	leave, err := enterYard(base, true)
	if err != nil {
		return nil, err
	}
	defer leave()
	dir, err := os.MkdirTemp(yard(base), homePrefix+"*")
	if err != nil {
		return nil, err
	}
	if socket := filepath.Join(dir, ".s.PGSQL.5432"); len(socket) > maxSocketPath {
		return nil, errors.Join(os.Remove(dir),
			fmt.Errorf("%s is %d bytes, and the path of a socket has at most %d: set TMPDIR to a shorter folder", socket, len(socket), maxSocketPath))
	}
	lock, held, err := takeLock(filepath.Join(dir, lockName), os.O_CREATE)
	if err == nil && !held {
		err = fmt.Errorf("%s is locked by another process", dir)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	h := &home{dir: dir, lock: lock}
	if err := account.owns(dir); err != nil {
		return nil, errors.Join(err, h.remove())
	}
	return h, nil
}

// enterYard takes the gate of the yard of a base, a lock that is held while homes are made or judged:
// without it a home that has no lock yet looks like one whose owner is dead. The gate stays when the last
// home is gone, for it cannot be removed without letting two processes through at once.
func enterYard(base string, create bool) (leave func(), err error) {
	dir := yard(base)
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711 // the account that the server runs as must pass
	}
	if create {
		err := os.Mkdir(dir, mode)
		if err == nil {
			err = os.Chmod(dir, mode) // whatever the umask says
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	// The base is open to every user of the machine: someone else may have made this name first.
	uid, _, ok := ownerOf(info)
	if !info.IsDir() || !ok || int64(uid) != int64(os.Geteuid()) || info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%s is not a folder that only this user can write to: remove it", dir)
	}
	gate, err := os.OpenFile(filepath.Join(dir, "gate"), os.O_CREATE|os.O_RDWR|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockWait(gate); err != nil {
		return nil, errors.Join(fmt.Errorf("lock of %s: %w", gate.Name(), err), gate.Close())
	}
	return func() { _ = gate.Close() }, nil // it was only held, nothing was written
}

// takeLock opens a lock file, with O_CREATE as flag also a new one, and takes its lock when it is free. The
// file stays open while the lock is held; when it is not, the file is closed again.
func takeLock(path string, flag int) (*os.File, bool, error) {
	f, err := os.OpenFile(path, flag|os.O_RDWR|noFollow, 0o600)
	if err != nil {
		return nil, false, err
	}
	held, err := lockNow(f)
	if err != nil {
		err = fmt.Errorf("lock of %s: %w", path, err)
	}
	if !held {
		return nil, false, errors.Join(err, f.Close())
	}
	return f, true, err
}

// sweep removes the homes whose owners are dead, in every base. A home that cannot be removed is left for
// the next time: it harms nobody.
func sweep(bases []string, log io.Writer) {
	for _, base := range bases {
		for _, h := range abandoned(base) {
			pid, err := endOrphan(h)
			if err == nil {
				err = h.remove()
			} else {
				err = errors.Join(err, h.lock.Close())
			}
			switch {
			case err != nil:
				say(log, "left %s of a process that was killed, it cannot be removed: %v", h.dir, err)
			case pid != 0:
				say(log, "ended PostgreSQL (pid %d) of a process that was killed, removed %s", pid, h.dir)
			default:
				say(log, "removed %s of a process that was killed", h.dir)
			}
		}
	}
}

// abandoned are the homes of a base that had no owner any more; this process owns them now.
func abandoned(base string) []*home {
	leave, err := enterYard(base, false)
	if err != nil {
		return nil // no yard: nothing was ever started there
	}
	defer leave()
	entries, err := os.ReadDir(yard(base))
	if err != nil {
		return nil
	}
	var homes []*home
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), homePrefix) {
			continue
		}
		if h := adopt(filepath.Join(yard(base), e.Name())); h != nil {
			homes = append(homes, h)
		}
	}
	return homes
}

// adopt takes over a home whose lock is free, or returns nil.
func adopt(dir string) *home {
	path := filepath.Join(dir, lockName)
	lock, held, err := takeLock(path, 0)
	if errors.Is(err, os.ErrNotExist) {
		// Its owner died between two calls or is removing it right now; in both cases it is empty. Anything
		// else makes this a folder to leave alone, and then nothing happens here.
		_ = os.Remove(dir)
	}
	if err != nil || !held {
		return nil
	}
	// The owner may have removed the file between the opening and the locking here.
	mine, mineErr := lock.Stat()
	now, nowErr := os.Stat(path)
	if mineErr != nil || nowErr != nil || !os.SameFile(mine, now) {
		lock.Close()
		return nil
	}
	return &home{dir: dir, lock: lock}
}
