// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"sync"

	"example.com/bothy/engine"
)

// missedEvents is how many events a worker finds when it comes back.
const missedEvents = 1_000_000

// catchup measures how much memory a worker takes that catches up on a long log: two consumers at once, each with a
// job for every event.
func catchup(ctx context.Context, b *bench) error {
	names := []string{"by-query", "by-field"}
	consumers := `  - {name: by-query, batch: 1000, job: {kind: bench.job}, recipients: {query: "SELECT seq, resource_id AS recipient FROM batch"}}
  - {name: by-field, batch: 1000, job: {kind: bench.job}, recipients: {field: audience}}
`
	var mu sync.Mutex
	behind := map[string]bool{names[0]: true, names[1]: true}
	caught := make(chan struct{})
	var f *fixture
	f, err := b.fixture(ctx, "bench_catchup", consumers, names, engine.WithObserver(func(name string, o engine.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		if o.End.Name == "idle" && behind[name] {
			if delete(behind, name); len(behind) == 0 {
				close(caught)
			}
		}
	}))
	if err != nil {
		return err
	}
	defer f.close()
	const step = 10_000
	for range missedEvents / step {
		_, err := f.pool.Exec(ctx, `SELECT bothy.append_events((SELECT jsonb_agg(jsonb_build_object('type', 'order.placed', 'resource', 'order',
	'resource_id', 'order-' || n, 'audience', jsonb_build_array('person-' || n), 'payload', jsonb_build_object('text', repeat('x', 200)))) FROM generate_series(1, $1) n))`, step)
		if err != nil {
			return err
		}
	}
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(b.out, "  not measured: the peak of a process is read from Linux's /proc")
		return nil
	} else if err != nil {
		return err
	}
	before, err := peak()
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.engine.Run(running, engine.RoleWorker) }()
	select {
	case <-caught:
	case err := <-ended:
		stop()
		return errors.Join(errors.New("the worker ended before it had caught up"), err)
	}
	after, err := peak()
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	var jobs int
	if err := f.pool.QueryRow(ctx, `SELECT count(*) FROM public.river_job`).Scan(&jobs); err != nil {
		return err
	}
	if jobs != len(names)*missedEvents {
		return fmt.Errorf("%d events gave %d jobs, want %d", missedEvents, jobs, len(names)*missedEvents)
	}
	b.note("resident before, MB", float64(before)/1024)
	b.goal(fmt.Sprintf("resident at most while two consumers catch up on %d events, MB", missedEvents), float64(after)/1024, false, 300)
	return nil
}

// peak is the largest resident size of this process since it was last set back, in kB.
func peak() (int, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, found := bytes.Cut(text, []byte("VmHWM:"))
	if !found {
		return 0, errors.New("/proc/self/status has no VmHWM")
	}
	return strconv.Atoi(string(bytes.Fields(rest)[0]))
}
