// SPDX-License-Identifier: Apache-2.0

package devdb

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Recovery is how a server begins that is made from a copy.
type Recovery string

// The ways to begin. The zero value begins as after a crash: with what the copy holds, as the server that it was.
const (
	Recover Recovery = "recovery" // replays an archive (restore_command) up to a target, and then writes a history of its own
	Standby Recovery = "standby"  // follows another server until it is promoted
)

// majorOf is the version of the cluster in a folder.
func majorOf(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if err != nil {
		return 0, fmt.Errorf("folder to copy the database from: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("folder to copy the database from: %s holds no cluster: its PG_VERSION is %q", dir, text)
	}
	return major, nil
}

// copied makes the cluster of a server from that in another folder.
func copied(ctx context.Context, from, to string, recovery Recovery, account *account) error {
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		part, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return copyEntry(path, filepath.Join(to, part), entry, account)
	})
	if err == nil && recovery != "" {
		signal := filepath.Join(to, string(recovery)+".signal")
		if err = os.WriteFile(signal, nil, 0o600); err == nil {
			err = account.owns(signal)
		}
	}
	if err != nil {
		return fmt.Errorf("copy of the database in %s: %w", from, err)
	}
	return nil
}

func copyEntry(from, to string, entry fs.DirEntry, account *account) error {
	switch {
	case entry.IsDir():
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
	case entry.Type().IsRegular():
		if err := copyFile(from, to); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s is neither a file nor a folder", from) // a tablespace would be shared with its owner
	}
	return account.owns(to)
}

func copyFile(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := target.Close(); err == nil {
			err = closeErr
		}
	}()
	_, err = io.Copy(target, source)
	return err
}
