// SPDX-License-Identifier: Apache-2.0

package devdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endOrphan ends the server of a home whose owner is dead and returns its pid, or 0 when none runs.
//
// A pid alone proves nothing: the number may be in use by another program by now, and a kept cluster may
// have a new and living owner. So the process must be one that was started with this very home as its
// socket folder, whose name no other home ever had.
func endOrphan(h *home) (int, error) {
	pid := orphanPID(h)
	if pid == 0 || !serves(pid, h.dir) {
		return 0, nil
	}
	proc, err := os.FindProcess(pid)
	if err != nil {
		return 0, err
	}
	defer proc.Release()
	if !serves(pid, h.dir) { // where a process has a handle, it is the right one from here on
		return 0, nil
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		if err := proc.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return 0, fmt.Errorf("signal to PostgreSQL (pid %d): %w", pid, err)
		}
		if gone(pid, h.dir, quitLimit) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("PostgreSQL (pid %d) does not end", pid)
}

// gone waits until the process serves no more.
func gone(pid int, dir string, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for serves(pid, dir) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// orphanPID is the pid that the cluster of a home names, if it was served from that home.
func orphanPID(h *home) int {
	for _, cluster := range []string{h.data(), filepath.Join(h.data(), clusterName)} {
		text, err := os.ReadFile(filepath.Join(cluster, "postmaster.pid"))
		if err != nil {
			continue
		}
		if pid, socket := parsePIDFile(text); socket == h.dir {
			return pid
		}
	}
	return 0
}

// parsePIDFile reads the two lines of a postmaster.pid that matter here: the first, the pid, and the
// fifth, the folder of the socket. The pid is 0 when the text makes no sense.
func parsePIDFile(text []byte) (pid int, socket string) {
	lines := strings.Split(string(text), "\n")
	if len(lines) < 5 {
		return 0, ""
	}
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 1 {
		return 0, ""
	}
	return pid, lines[4]
}

// serves says whether a living process has "-k dir" among its arguments. A process that has ended and was
// not waited for has no arguments.
func serves(pid int, dir string) bool {
	args := arguments(pid)
	i := slices.Index(args, "-k")
	return i >= 0 && i+1 < len(args) && args[i+1] == dir
}

func arguments(pid int) []string {
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil {
		return strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00")
	}
	if _, err := os.Stat("/proc/self/cmdline"); err == nil {
		return nil // there is a /proc, and the process is not in it
	}
	ctx, cancel := context.WithTimeout(context.Background(), fastLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}
