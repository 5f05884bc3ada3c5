// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import "syscall"

// The signals of a chaos run.
const (
	kill      = syscall.SIGKILL
	terminate = syscall.SIGTERM
	freeze    = syscall.SIGSTOP
	thaw      = syscall.SIGCONT
)

// chaosSupported says why there can be no chaos on this system.
func chaosSupported() error { return nil }
