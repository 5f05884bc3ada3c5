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
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a child that must not outlive this process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of Wait; valid after done
}

// tie starts a child and waits for it in a goroutine that keeps its thread: the signal at the end of the
// parent is sent when the thread that forked ends, and the Go runtime ends threads as it likes.
func tie(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

// state says how the process ended, in the words of the system.
func (p *process) state() string {
	if p.cmd.ProcessState == nil {
		return "not waited for"
	}
	return p.cmd.ProcessState.String()
}

// stop asks for less and less politeness: fast shutdown (roll back, write a checkpoint), immediate
// shutdown, kill.
func (p *process) stop() error { return p.stopFrom(syscall.SIGINT) }

// stopFrom begins at one of these steps. PostgreSQL itself does not end when it is asked for a fast shutdown while it
// recovers from a crash, so that no step may be the last.
func (p *process) stopFrom(first syscall.Signal) error {
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL}
	limits := map[syscall.Signal]time.Duration{syscall.SIGINT: fastLimit, syscall.SIGQUIT: quitLimit, syscall.SIGKILL: quitLimit}
	for _, signal := range signals[slices.Index(signals, first):] {
		if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("signal to PostgreSQL: %w", err)
		}
		timer := time.NewTimer(limits[signal])
		select {
		case <-p.done:
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return fmt.Errorf("PostgreSQL (pid %d) does not end", p.cmd.Process.Pid)
}

// childEnv is the environment of every program that is started here. PG variables of the user would turn
// the server or initdb to another port or folder; a language of the user would translate the messages.
func childEnv() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "TMPDIR", "HOME"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// initdb makes a cluster in a folder that does not exist yet.
func initdb(ctx context.Context, bin Binaries, dir string, account *account, durable bool) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("folder for a new database: %w", err)
	}
	if err := account.owns(dir); err != nil {
		return fmt.Errorf("folder for a new database: %w", err)
	}
	var out bytes.Buffer
	args := []string{"-D", dir, "-U", Superuser, "--no-instructions", "--locale=C", "--encoding=UTF8", "--auth=trust"}
	if !durable {
		args = append(args, "--no-sync")
	}
	cmd := exec.Command(filepath.Join(bin.Bin, "initdb"), args...)
	cmd.Dir, cmd.Env = "/", childEnv()
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // its own children share the pipe
	cmd.SysProcAttr = childAttr(account, syscall.SIGTERM)
	p, err := tie(cmd)
	if err != nil {
		return fmt.Errorf("start of %s: %w", cmd.Path, err)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("new database in %s: %w", dir, context.Cause(ctx)), p.stop())
	}
	if p.err != nil {
		return fmt.Errorf("%s in %s: %w:\n%s", cmd.Path, dir, p.err, lastLines(out.String(), tailLines))
	}
	return nil
}

// launch starts the server. It gets everything as arguments, so that a kept cluster holds no setting that
// another start did not ask for.
func (s *Server) launch(o Options, m machine, account *account) (*process, error) {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY|noFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of the server: %w", err)
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(filepath.Join(s.bin.Bin, "postgres"), s.arguments(o)...)
	cmd.Dir, cmd.Env = "/", childEnv()
	cmd.Stdout, cmd.Stderr = log, log
	end := syscall.SIGQUIT
	if s.kept != nil {
		end = syscall.SIGINT // time for a checkpoint
	}
	if m.untied {
		end = 0
	}
	cmd.SysProcAttr = childAttr(account, end)
	p, err := tie(cmd)
	if err != nil {
		return nil, fmt.Errorf("start of %s: %w", cmd.Path, err)
	}
	return p, nil
}

func (s *Server) arguments(o Options) []string {
	connections := o.MaxConnections
	if connections == 0 {
		connections = 100
	}
	args := []string{"-D", s.cluster(), "-k", s.home.dir}
	set := func(name, value string) { args = append(args, "-c", name+"="+value) }
	set("timezone", "UTC")
	if !o.Durable {
		set("fsync", "off")
		set("synchronous_commit", "off")
		set("full_page_writes", "off")
	}
	if s.kept == nil {
		// In the cluster instead of /dev/shm: gone with it also after a kill, and not bound to the 64 MiB of a container.
		set("dynamic_shared_memory_type", "mmap")
	}
	for name, value := range o.Settings {
		set(name, value)
	}
	set("max_connections", strconv.Itoa(connections))
	set("listen_addresses", "")
	set("port", "5432")
	set("unix_socket_permissions", "0700")
	set("logging_collector", "off")
	set("log_destination", "stderr")
	return args
}

const tailLines = 12

// tail is the end of a log, for an error message.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text), tailLines)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return "    " + strings.Join(lines, "\n    ")
}
