// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/jobs"
	"example.com/bothy/engine/riverpage"
	"example.com/bothy/engine/statuspage"
)

const (
	lookInterval  = 25 * time.Millisecond // between two looks at the cursors
	recorderLimit = 20 * time.Second      // for the recorder to work what is left, once every round is done
	stopLimit     = 30 * time.Second
	devLook       = time.Second // between two looks of the status page
)

// devRun is one run of dev on a database that is ready.
type devRun struct {
	cmd    *cobra.Command
	flags  devFlags
	cfg    *config.Config
	url    string
	pool   *pgxpool.Pool // of the recorder and of River UI
	tally  *tally
	engine *engine.Engine
	ended  chan struct{} // closed when the engine's Run has returned
	runErr error         // what it returned; read after ended
	from   map[string]int64
}

// follow starts the engine, and stops it when the run is over.
func follow(ctx context.Context, r *devRun) (err error) {
	if r.pool, err = pgxpool.New(ctx, r.url); err != nil {
		return fmt.Errorf("connect to the database of dev: %w", err)
	}
	defer r.pool.Close()
	logger := newLogger(r.cfg.Log, r.cmd.ErrOrStderr())
	options := []engine.Option{engine.WithLogger(logger), engine.WithObserver(r.tally.observe)}
	if !r.flags.once { // somebody may look
		paging, stop := context.WithCancel(ctx)
		defer stop()
		page, err := riverpage.New(paging, r.pool, r.cfg.Jobs.Schema, engine.JobsPath, r.quiet())
		if err != nil {
			return err
		}
		options = append(options, engine.WithLocalPage(page), engine.WithPace(devLook))
	}
	if r.engine, err = engine.Open(ctx, r.cfg, options...); err != nil {
		return err
	}
	defer r.engine.Close()
	if err := r.engine.Register(mentionsName, mentions); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	r.ended = make(chan struct{})
	go func() {
		defer close(r.ended)
		r.runErr = r.engine.Run(running, engine.RoleAll)
	}()
	err = r.start(ctx)
	stop()
	<-r.ended
	if !errors.Is(err, r.runErr) {
		err = errors.Join(err, r.runErr)
	}
	return err
}

// quiet is where River writes: its own start and stop are no news.
func (r *devRun) quiet() *slog.Logger {
	return newLogger(config.Log{Level: "error", Format: r.cfg.Log.Format}, r.cmd.ErrOrStderr())
}

// start waits for the cursors, starts the recorder, and goes to work.
func (r *devRun) start(ctx context.Context) error {
	states, err := r.await(ctx, nil, func(states map[string]engine.State) bool { return len(states) == len(r.cfg.Consumers) })
	if err != nil {
		return err
	}
	r.from = map[string]int64{}
	var head int64
	for name, s := range states {
		r.from[name], head = s.LastSeq, max(head, s.HeadSeq)
	}
	recorder, err := jobs.NewRecorder(r.pool, r.cfg.Jobs.Schema, engine.Consumers(r.cfg), r.from, r.quiet())
	if err != nil {
		return err
	}
	if err := recorder.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	err = r.work(ctx, recorder, head)
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	return errors.Join(err, recorder.Stop(limited))
}

// work appends the events, waits until they are processed, and says what came of them.
func (r *devRun) work(ctx context.Context, recorder *jobs.Recorder, head int64) error {
	if r.flags.events != "" || head == 0 { // a kept database has its events already
		a := appending{cmd: r.cmd, cfg: r.cfg, file: r.flags.events, batch: 1000}
		if a.file == "" {
			a.file, a.text = "the sample", sampleEvents
		}
		if err := a.whole(); err != nil {
			return err
		}
	}
	bar := newProgress(r.cmd.ErrOrStderr())
	states, err := r.await(ctx, func(states map[string]engine.State) { bar.show(states, r.from) }, drained)
	bar.end()
	if err != nil {
		return err
	}
	if r.flags.once {
		r.awaitRecorder(ctx, recorder, states)
		return r.verify(ctx, recorder)
	}
	if err := r.verify(ctx, recorder); err != nil {
		return err
	}
	fmt.Fprintf(r.cmd.ErrOrStderr(), "status page at http://%s%s\n", r.engine.Address(), statuspage.Path)
	fmt.Fprintf(r.cmd.ErrOrStderr(), "running until it is interrupted; append more with\n    %s='%s' engine events append --config %s FILE\n", databaseVariable, withoutPassword(r.url), r.flags.config)
	if <-r.ended; r.runErr != nil { // it ends when ctx does, and has finished its rounds by then
		return r.runErr
	}
	if err := serverEnded(ctx); err != nil {
		return err
	}
	return r.verify(context.WithoutCancel(ctx), recorder)
}

// serverEnded is why the context ended when that was the private server, or nil.
func serverEnded(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func interrupted(ctx context.Context) error {
	if err := serverEnded(ctx); err != nil {
		return err
	}
	return errors.New("interrupted before every event was processed")
}

// withoutPassword is an address that may be shown.
func withoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return "..." // a key=value string, whose password has no fixed place
	}
	return u.Redacted()
}

func drained(states map[string]engine.State) bool {
	for _, s := range states {
		if s.LastSeq < s.HeadSeq {
			return false
		}
	}
	return true
}

// await looks at the declared consumers until enough says so. It gives up when the engine ends, and when a
// consumer fails again and again.
func (r *devRun) await(ctx context.Context, look func(map[string]engine.State), enough func(map[string]engine.State) bool) (map[string]engine.State, error) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		states, err := r.states(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, interrupted(ctx)
		case err != nil:
			return nil, err
		}
		if look != nil {
			look(states)
		}
		if enough(states) {
			return states, nil
		}
		if err := r.tally.stuck(); err != nil && r.flags.once {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		case <-r.ended:
			if r.runErr == nil {
				return nil, interrupted(ctx)
			}
			return nil, r.runErr
		}
	}
}

// states are the declared consumers that have a cursor.
func (r *devRun) states(ctx context.Context) (map[string]engine.State, error) {
	list, err := r.engine.States(ctx)
	states := map[string]engine.State{}
	for _, s := range list {
		if slices.Contains(r.cfg.Names(), s.Name) {
			states[s.Name] = s
		}
	}
	return states, err
}

// awaitRecorder gives the recorder time to work what the rounds inserted on the way to where the cursors are. What
// it leaves is said, and is no failure: who works a job, and when, is not the engine's promise.
func (r *devRun) awaitRecorder(ctx context.Context, recorder *jobs.Recorder, states map[string]engine.State) {
	limit := time.NewTimer(recorderLimit)
	defer limit.Stop()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for !r.tally.caughtUp(r.from, states) || worked(recorder) < r.tally.inserted() {
		select {
		case <-tick.C:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func worked(recorder *jobs.Recorder) int {
	total := 0
	for n := range maps.Values(recorder.Worked()) {
		total += n
	}
	return total
}

// progress is a bar on a terminal, and nothing elsewhere.
type progress struct {
	all *mpb.Progress
	bar *mpb.Bar
}

func newProgress(to io.Writer) *progress {
	p := &progress{}
	if f, ok := to.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.all = mpb.New(mpb.WithOutput(f))
		}
	}
	return p
}

// show moves the bar to what the consumers have done together, each event counted once for each of them.
func (p *progress) show(states map[string]engine.State, from map[string]int64) {
	if p.all == nil {
		return
	}
	var done, total int64
	for name, s := range states {
		done, total = done+s.LastSeq-from[name], total+s.HeadSeq-from[name]
	}
	if p.bar == nil {
		p.bar = p.all.AddBar(total, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name("rounds ")), mpb.AppendDecorators(decor.Percentage()))
	}
	p.bar.SetTotal(total, false)
	p.bar.SetCurrent(done)
}

func (p *progress) end() {
	if p.all == nil {
		return
	}
	if p.bar != nil {
		p.bar.Abort(true)
	}
	p.all.Wait()
}
