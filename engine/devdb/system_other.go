// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin

package devdb

import (
	"errors"
	"os"
	"syscall"
)

// The rest of the program works on such a system with a server that runs elsewhere, so this package
// compiles; every Start ends with this error.
var errSystem = errors.New("a private PostgreSQL runs on Linux and macOS only: set BOTHY_TEST_SERVER_URL to use a server that runs already")

func supported() error { return errSystem }

const (
	maxSocketPath = 100
	noFollow      = 0
)

func lockNow(*os.File) (bool, error) { return false, errSystem }

func lockWait(*os.File) error { return errSystem }

func ownerOf(os.FileInfo) (uid, gid uint32, ok bool) { return 0, 0, false }

func childAttr(*account, syscall.Signal) *syscall.SysProcAttr { return nil }

func freeBytes(string) uint64 { return 0 }
