// SPDX-License-Identifier: Apache-2.0

package main

import "syscall"

// ownGroup keeps the signals of a terminal away from a child, which this process ends itself. When this process
// dies first, the child is killed, also while it is frozen.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
