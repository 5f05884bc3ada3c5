// SPDX-License-Identifier: Apache-2.0

package devdb

import "syscall"

const maxSocketPath = 107

// childAttr describes a child: its account, the signal it gets when this process ends (0 is none), and a
// process group of its own, so that Ctrl-C in a terminal reaches this process only, which then stops the
// server when it is done with it.
func childAttr(a *account, end syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential(a), Setpgid: true, Pdeathsig: end}
}

// freeBytes is how much a file system can still take, 0 when it cannot be asked or written to.
func freeBytes(dir string) uint64 {
	var st syscall.Statfs_t
	const writable = 2
	if syscall.Access(dir, writable) != nil || syscall.Statfs(dir, &st) != nil {
		return 0
	}
	return st.Bavail * uint64(st.Bsize)
}
