// SPDX-License-Identifier: Apache-2.0

package devdb

import "syscall"

const maxSocketPath = 103

// childAttr describes a child: its account, and a process group of its own, so that Ctrl-C in a terminal
// reaches this process only. There is no signal at the end of a parent here: the next Start cleans up.
func childAttr(a *account, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential(a), Setpgid: true}
}

// freeBytes is 0: there is no file system in memory to ask for.
func freeBytes(string) uint64 { return 0 }
