// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package main

import "syscall"

// ownGroup keeps the signals of a terminal away from a child, which this process ends itself. When this process dies
// first, the child sees the end of its standard input; one that is frozen is woken, since its group is an orphan.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
