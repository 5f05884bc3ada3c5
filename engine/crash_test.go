// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
)

// A round that ends in its middle, with jobs of some events inserted already, leaves nothing of itself. A fresh
// engine then does it again from the start, and every event has its jobs once.
func TestConsumerCrashMidRoundNoDuplicates(t *testing.T) {
	t.Parallel()
	const events, middle = 9, 5
	type scene struct {
		db     *enginetest.DB
		pid    int // the session of the round on the server
		cancel func()
	}
	for name, c := range map[string]struct {
		strike func(ctx context.Context, t *testing.T, s scene) error // ends the round from inside the handler
		end    string
	}{
		"backend_terminated": {func(_ context.Context, t *testing.T, s scene) error {
			t.Helper()
			s.db.Exec(t, `SELECT pg_terminate_backend($1, 60000)`, s.pid) // returns when the session is gone
			return nil
		}, "failed"},
		"handler_error": {func(context.Context, *testing.T, scene) error { return errors.New("broken on purpose") }, "failed"},
		"handler_panic": {func(context.Context, *testing.T, scene) error { panic("broken on purpose") }, "failed"},
		"context_cancelled": {func(ctx context.Context, _ *testing.T, s scene) error {
			s.cancel()
			<-ctx.Done()
			return nil
		}, "stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			push, other := entry{name: "push", batch: 100, recipients: "{handler: probe}"}, entry{name: "other", batch: 100}
			db := database(t, push, other)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var broken atomic.Bool // once it has broken, it works
			start := func() *engine.Engine {
				e := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}", push, other))
				register(t, e, "probe", func(ctx context.Context, tx *engine.HandlerTx, ev engine.Event) ([]string, error) {
					if err := tx.InsertJob(ctx, ownArgs{Seq: ev.Seq}, ownJob); err != nil {
						return nil, err
					}
					if ev.Seq == middle && broken.CompareAndSwap(false, true) {
						var pid int
						if err := tx.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
							return nil, err
						}
						if err := c.strike(ctx, t, scene{db, pid, cancel}); err != nil {
							return nil, err
						}
					}
					return []string{"alex", "sam"}, nil
				})
				return e
			}
			e := start()
			ensure(t, e)
			db.Append(t, events)

			o := roundUnder(ctx, t, e, "push")
			if !broken.Load() {
				t.Fatalf("the round ended %s (%v) without having come to its middle", o.End.Name, o.Err)
			}
			if o.End.Name != c.end {
				t.Errorf("the round ended %s (%v), want %s", o.End.Name, o.Err, c.end)
			}
			if jobs, own, cursor := jobsOf(t, db, "push"), db.Jobs(t, "test.own"), cursorOf(t, db, "push"); len(jobs)+own > 0 || cursor != 0 {
				t.Errorf("of the round there are %d jobs, %d of the handler's own, and the cursor is at %d: want nothing", len(jobs), own, cursor)
			}
			wantRound(t, e, "other", "processed")

			stop := runInBackground(t, start()) // the process that was started again
			waitUntil(t, "the fresh engine reaches the head", func() bool { return cursorOf(t, db, "push") == events })
			stop()
			for _, name := range []string{"push", "other"} {
				wantExactlyOnce(t, db, name, 1, events, "alex", "sam")
			}
			if own := db.Jobs(t, "test.own"); own != events {
				t.Errorf("%d jobs of the handler's own, want %d", own, events)
			}
		})
	}
}
