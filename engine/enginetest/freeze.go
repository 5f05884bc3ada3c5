// SPDX-License-Identifier: Apache-2.0

//go:build unix

package enginetest

import (
	"os"
	"syscall"
	"testing"
)

// Private reports whether the server is one of this test binary, on this machine.
func (db *DB) Private() bool { return shared.own != nil }

// Freeze stops a process of the server, which stays connected and answers nothing, until the returned
// function is called or the test ends.
func (db *DB) Freeze(t testing.TB, pid uint32) (thaw func()) {
	t.Helper()
	process, err := os.FindProcess(int(pid))
	if err != nil {
		t.Fatalf("find the process %d of the server: %v", pid, err)
	}
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("freeze the process %d of the server: %v", pid, err)
	}
	thaw = func() { _ = process.Signal(syscall.SIGCONT) }
	t.Cleanup(thaw) // the process may have ended by then
	return thaw
}
