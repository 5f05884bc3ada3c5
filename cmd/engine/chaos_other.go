// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import (
	"errors"
	"syscall"
)

// The signals of a chaos run, which there is none of on such a system.
const (
	kill      = syscall.SIGKILL
	terminate = syscall.SIGTERM
	freeze    = syscall.Signal(-1)
	thaw      = syscall.Signal(-1)
)

func chaosSupported() error {
	return errors.New("dev --chaos needs a system with SIGSTOP: Linux or macOS")
}

func ownGroup() *syscall.SysProcAttr { return nil }
