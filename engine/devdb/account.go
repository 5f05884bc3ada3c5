// SPDX-License-Identifier: Apache-2.0

package devdb

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// account is who the server runs as. Nil is this process's own user; PostgreSQL refuses to run as root,
// so root hands the server to an account that has no rights.
type account struct {
	name     string
	uid, gid uint32
}

func runAs() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("this process is root, PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody: " +
		"run as an ordinary user, or set BOTHY_TEST_SERVER_URL to use a server that runs already")
}

// owns hands a file or folder to the account.
func (a *account) owns(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// reaches says whether the account can enter every folder on the way to path and path itself (or run it,
// when it is a program). A folder above that is closed, such as the home of root, is the usual trap.
func (a *account) reaches(path string) error {
	if a == nil {
		return nil
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for p := resolved; ; p = filepath.Dir(p) {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		if !a.enters(info) {
			return fmt.Errorf("%s has mode %#o, so that user %s, which the server runs as because this process is root, "+
				"cannot reach %s: choose a place that every user can reach", p, info.Mode().Perm(), a.name, path)
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
}

func (a *account) enters(info os.FileInfo) bool {
	bit := os.FileMode(0o001)
	if uid, gid, ok := ownerOf(info); ok {
		switch {
		case uid == a.uid:
			bit = 0o100
		case gid == a.gid:
			bit = 0o010
		}
	}
	return info.Mode()&bit != 0
}

// makeReachable makes a folder and the missing ones above it, open to every user where root makes it:
// the account that the server runs as has to pass.
func makeReachable(dir string) error {
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o755
	}
	var missing []string
	for p := dir; ; p = filepath.Dir(p) {
		if _, err := os.Stat(p); err == nil || p == filepath.Dir(p) {
			break
		}
		missing = append(missing, p)
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	for _, p := range missing {
		if err := os.Chmod(p, mode); err != nil { // whatever the umask says
			return err
		}
	}
	return nil
}
