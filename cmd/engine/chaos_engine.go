// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
)

// chaosEngineName is the command that one engine of a chaos run is.
const chaosEngineName = "dev-engine"

// chaosEngineCommand is `engine run` on the private database of a chaos run. It ends with its parent, however that ends: its
// standard input is a pipe that nobody else holds.
func chaosEngineCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use: chaosEngineName, Hidden: true, Args: arguments(),
		Short: "is one of the engines that dev --chaos starts",
	}
	path, url := configFlag(cmd), cmd.Flags().String("url", "", "the `URL` of the private database")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := readConfig(cmd, *path, privately(env))
		if err != nil {
			return err
		}
		chaosConfig(cfg, *url)
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		go func() {
			_, _ = io.Copy(io.Discard, cmd.InOrStdin()) // whatever ends it, the parent is gone
			cancel()
		}()
		e, err := engine.Open(ctx, cfg, engine.WithLogger(newLogger(cfg.Log, cmd.ErrOrStderr())))
		if err != nil {
			return err
		}
		defer e.Close()
		if err := e.Register(mentionsName, mentions); err != nil {
			return err
		}
		return e.Run(ctx, engine.RoleWorker)
	}
	return cmd
}

// chaosConfig changes a configuration to a private database on which things break often: what waits for a
// timeout in production waits for a few seconds here.
func chaosConfig(cfg *config.Config, url string) {
	alone(cfg, url)
	cfg.Sync.EventLogPartitionSize = chaosPartition
	cfg.Database.StatementTimeout, cfg.Database.LockTimeout, cfg.Database.IdleInTxTimeout = 5*time.Second, 2*time.Second, chaosIdle
	cfg.Database.ListenReconnectBackoffCap = time.Second
	cfg.Shutdown.TotalTimeout = 5 * time.Second
	cfg.Log = config.Log{Level: "info", Format: "text"}
	for i := range cfg.Consumers {
		cfg.Consumers[i].PollInterval = min(cfg.Consumers[i].PollInterval, devPoll)
	}
}

const (
	chaosPartition = 1000            // events: many partitions are made on the way
	chaosIdle      = 2 * time.Second // a frozen engine loses its transaction after this
	// what an engine says when it works, and what no engine may ever say
	chaosStarted = `msg="engine started"`
	chaosPanic   = "panic: "
	// engineEnd is the longest that an engine may take to end in good order: the total timeout above, and what a
	// busy machine needs.
	engineEnd    = 20 * time.Second
	enginePause  = 100 * time.Millisecond // between the end of one engine and the start of the next in its place
	engineMemory = 64 << 10               // bytes of its log that are kept
)

// chaosEngine is one place for an engine: when one process ends, the next is started.
type chaosEngine struct {
	name string
	args []string

	mu   sync.Mutex
	life *engineLife // the present process; nil between two
}

// engineLife is one process.
type engineLife struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of Wait; valid after done
	log  lastWords

	mu       sync.Mutex
	expected bool // somebody ended it on purpose
}

// supervise starts an engine again whenever one has ended, until ctx ends; then it ends the last in good
// order. An engine that ends by itself is an error.
func (p *chaosEngine) supervise(ctx context.Context) error {
	for ctx.Err() == nil {
		life, err := p.launch()
		if err != nil {
			return err
		}
		select {
		case <-life.done:
		case <-ctx.Done():
			return p.finish(life)
		}
		if err := p.judge(life); err != nil {
			return err
		}
		timer := time.NewTimer(enginePause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return nil
}

func (p *chaosEngine) launch() (*engineLife, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	life := &engineLife{done: make(chan struct{})}
	life.cmd = exec.Command(self, p.args...) //nolint:noctx // it is ended by signals, in good order or not
	life.cmd.Args[0] = "engine"
	life.cmd.Stdout, life.cmd.Stderr = &life.log, &life.log
	life.cmd.SysProcAttr = ownGroup()
	life.cmd.WaitDelay = time.Second
	if _, err := life.cmd.StdinPipe(); err != nil { // open until it has ended
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	// The goroutine keeps its thread: where a child is killed with its parent, it is with the thread that started it.
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(life.done)
		err := life.cmd.Start()
		started <- err
		if err == nil {
			life.err = life.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		<-life.done
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life = life
	return life, nil
}

// judge says whether a process that has ended had a reason to.
func (p *chaosEngine) judge(life *engineLife) error {
	life.mu.Lock()
	defer life.mu.Unlock()
	switch {
	case life.log.has(chaosPanic):
		return fmt.Errorf("%s panicked:\n%s", p.name, life.log.String())
	case !life.expected && life.log.has(chaosStarted):
		return fmt.Errorf("%s ended by itself (%s), and said last:\n%s", p.name, life.cmd.ProcessState, life.log.String())
	default:
		return nil // on purpose, or the database was not there when it started
	}
}

// finish ends the last process: it has to end by itself, with exit code 0, as nothing is broken any more.
func (p *chaosEngine) finish(life *engineLife) error {
	started := life.log.has(chaosStarted)
	life.end(thaw)
	life.end(terminate)
	if !life.wait(engineEnd) {
		life.end(kill)
		<-life.done
		return fmt.Errorf("%s did not end within %v of SIGTERM; it said last:\n%s", p.name, engineEnd, life.log.String())
	}
	if err := p.judge(life); err != nil {
		return err
	}
	if life.err != nil && started {
		return fmt.Errorf("%s ended with %w after SIGTERM; it said last:\n%s", p.name, life.err, life.log.String())
	}
	return nil
}

// present is the process that there is now, or nil.
func (p *chaosEngine) present() *engineLife {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life
}

// running reports whether a process is there and has begun its work.
func (p *chaosEngine) running() bool {
	life := p.present()
	return life != nil && !life.wait(0) && life.log.has(chaosStarted)
}

// end sends a signal. It reports whether the process was still there.
func (l *engineLife) end(signal os.Signal) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expected = l.expected || signal == terminate || signal == kill
	return !l.wait(0) && l.cmd.Process.Signal(signal) == nil
}

// wait reports whether the process has ended within the limit.
func (l *engineLife) wait(limit time.Duration) bool {
	if limit == 0 {
		select {
		case <-l.done:
			return true
		default:
			return false
		}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-l.done:
		return true
	case <-timer.C:
		return false
	}
}

// lastWords keeps the end of what is written to it, and whether what matters was among it.
type lastWords struct {
	mu   sync.Mutex
	text []byte
	seen map[string]bool
}

// Write never fails.
func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	for _, word := range []string{chaosStarted, chaosPanic} {
		if bytes.Contains(w.text, []byte(word)) {
			if w.seen == nil {
				w.seen = map[string]bool{}
			}
			w.seen[word] = true
		}
	}
	if len(w.text) > engineMemory {
		w.text = append([]byte(nil), w.text[len(w.text)-engineMemory/2:]...)
	}
	return len(p), nil
}

func (w *lastWords) has(word string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[word]
}

const lastLines = 15

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := bytes.Split(bytes.TrimRight(w.text, "\n"), []byte("\n"))
	lines = lines[max(0, len(lines)-lastLines):]
	return "    " + string(bytes.Join(lines, []byte("\n    ")))
}
