// SPDX-License-Identifier: Apache-2.0

package devdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Shutdown is a way to end a server that is started again at once.
type Shutdown string

// The shutdowns.
const (
	Fast      Shutdown = "fast"      // clients are disconnected, and what they committed is written out
	Immediate Shutdown = "immediate" // nothing is written out: the next start recovers from the log
	Killed    Shutdown = "killed"    // as Immediate, and the server gets no say in it
)

const (
	restartLimit = time.Minute            // for the new server to recover and accept connections
	restartPause = 100 * time.Millisecond // between two attempts to start it again
)

// Restart ends the server and starts it again over the same data, at the same URL. It returns when
// connections are accepted. Clients see their connections break. When it fails, the server has ended.
func (s *Server) Restart(ctx context.Context, how Shutdown) error {
	signal, known := map[Shutdown]syscall.Signal{Fast: syscall.SIGINT, Immediate: syscall.SIGQUIT, Killed: syscall.SIGKILL}[how]
	if !known {
		return fmt.Errorf("restart of the private PostgreSQL: there is no shutdown %q", string(how))
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	old := s.process()
	select {
	case <-s.ended:
		return errors.New("restart of the private PostgreSQL: it has ended")
	default:
	}
	if err := s.again(ctx, old, signal); err != nil {
		s.mu.Lock()
		if s.proc == nil {
			close(s.ended)
		}
		s.mu.Unlock()
		return fmt.Errorf("restart of the private PostgreSQL (%s): %w", how, err)
	}
	return nil
}

func (s *Server) again(ctx context.Context, old *process, signal syscall.Signal) error {
	s.mu.Lock()
	s.proc = nil // so that the end of the old one is not that of the server
	s.mu.Unlock()
	if err := old.stopFrom(signal); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.proc = old
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, restartLimit, fmt.Errorf("the server did not come back within %v", restartLimit))
	defer cancel()
	tick := time.NewTicker(restartPause)
	defer tick.Stop()
	for {
		p, err := s.launch(s.options, s.machine, s.account)
		if err != nil {
			return err
		}
		// What the old server has started may live on for a moment, and until then its memory is in use.
		if err = s.waitReady(limited, p); err == nil {
			s.serve(p)
			return nil
		}
		if stopErr := p.stop(); stopErr != nil {
			return errors.Join(err, stopErr)
		}
		select {
		case <-tick.C:
		case <-limited.Done():
			return errors.Join(context.Cause(limited), err)
		}
	}
}

// Crash kills one process of the server, as the system does when memory runs out. The server then ends all
// others, rolls back what was not committed and goes on by itself. A process that has ended meanwhile is none of the
// server's, and is left alone.
func (s *Server) Crash(pid int) error {
	p := s.process()
	if p == nil || parent(pid) != p.cmd.Process.Pid {
		return fmt.Errorf("crash of the private PostgreSQL: process %d is none of its own", pid)
	}
	victim, err := os.FindProcess(pid)
	if err == nil {
		err = victim.Kill()
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("crash of the private PostgreSQL: kill process %d: %w", pid, err)
	}
	return nil
}

// parent is the pid of the process that started another one, or 0.
func parent(pid int) int {
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		// the name in parentheses may hold blanks and parentheses of its own; the state follows, then the parent
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 2 {
			return 0
		}
		ppid, _ := strconv.Atoi(fields[1])
		return ppid
	}
	ctx, cancel := context.WithTimeout(context.Background(), fastLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-o", "ppid=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return 0
	}
	ppid, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	return ppid
}
