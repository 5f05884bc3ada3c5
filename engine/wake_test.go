// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// next is what a channel gives, within the patience of tests.
func next[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case value = <-from:
	case <-timer.C:
		t.Fatalf("nothing came within %v", patience)
	}
	return value
}

// Case 35: a pooler in transaction mode takes LISTEN and delivers nothing. What asked for a notification and got
// none says so; when one comes after all, it says that too.
func TestWakerTellsThatItHearsNothing(t *testing.T) {
	t.Parallel()
	db := database(t)
	heard, woken := make(chan bool, 10), make(chan struct{}, 10)
	waker := postgres.Waker{
		URL: db.AppURL, Backoff: time.Second, BackoffCap: time.Second, ProbeLimit: 50 * time.Millisecond,
		Probe: func(context.Context) error { return nil }, // lost on its way
		Heard: func(ok bool) { heard <- ok },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- waker.Run(ctx, func() { woken <- struct{}{} }) }()
	next(t, woken) // after connecting
	if next(t, heard) {
		t.Error("the waker says that it heard something")
	}
	db.Append(t, 1)
	next(t, woken) // it goes on listening
	if !next(t, heard) {
		t.Error("the waker does not say that it hears after all")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want the context's error", err)
	}
}

// The engine asks itself, by its pool, and says nothing when it hears.
func TestEngineHearsItself(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	var log lines
	e := open(t, configure(t, db, push), engine.WithLogger(log.logger()))
	ensure(t, e)
	stop := runInBackground(t, e)
	waitUntil(t, "the engine listens", func() bool { return listeners(t, db) == 1 })
	db.Append(t, 1)
	waitUntil(t, "the notification brings the jobs", func() bool { return cursorOf(t, db, "push") == 1 })
	stop()
	if strings.Contains(log.String(), "listener") {
		t.Errorf("log:\n%swant nothing of the listener", log.String())
	}
}

// With sync.notify: off there is no connection that listens, and the poll does it all.
func TestNotifyOffOnlyPolls(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	e := open(t, configureWith(t, db.AppURL, "sync: {notify: off}\nconsumer: {poll_interval: 20ms}", push))
	ensure(t, e)
	stop := runInBackground(t, e)
	for n := range int64(3) {
		db.Append(t, 1)
		waitUntil(t, "the poll brings the jobs", func() bool { return cursorOf(t, db, "push") == n+1 })
		if n := listeners(t, db); n != 0 {
			t.Errorf("%d connections listen, want none", n)
		}
	}
	stop()
	wantExactlyOnce(t, db, "push", 1, 3, "alex", "sam")
}

// Each attempt to connect waits twice as long as the one before, up to the cap.
func TestWakerBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start, attempts := time.Now(), []time.Duration(nil)
		waker := postgres.Waker{
			URL:     "postgres://%zz", // fails before anything is sent
			Backoff: time.Second, BackoffCap: 5 * time.Second,
			Changed: func(error) {
				if attempts = append(attempts, time.Since(start)); len(attempts) == 6 {
					cancel()
				}
			},
		}
		if err := waker.Run(ctx, func() {}); !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want the context's error", err)
		}
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 12 * time.Second, 17 * time.Second}
		if diff := cmp.Diff(want, attempts); diff != "" {
			t.Errorf("attempts at (-want +got):\n%s", diff)
		}
	})
}

// River's workers are told of the jobs of a round once it has committed.
func TestWorkersAreToldOfJobs(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	e, db := prepared(t, push)
	worker := enginetest.Connect(t, db.AppURL)
	if _, err := worker.Exec(t.Context(), `LISTEN "public.river_insert"`); err != nil {
		t.Fatal(err)
	}
	db.Append(t, 1)
	wantRound(t, e, "push", "processed")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := worker.WaitForNotification(ctx)
	if err != nil {
		t.Fatalf("no notification of the new job: %v", err)
	}
	if n.Payload != `{"queue":"default"}` {
		t.Errorf("notification %q, want the queue of the job", n.Payload)
	}
}

func TestConsumerWakesOnNotify(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	e, db := prepared(t, push) // the poll interval is an hour
	runInBackground(t, e)
	waitUntil(t, "the engine listens", func() bool { return listeners(t, db) == 1 })
	for n := range int64(3) {
		db.Append(t, 1)
		waitUntil(t, "the notification brings the jobs", func() bool { return cursorOf(t, db, "push") == n+1 })
	}
	wantExactlyOnce(t, db, "push", 1, 3, "alex", "sam")
}

// listeners counts the connections that listen for events.
func listeners(t testing.TB, db *enginetest.DB) (n int) {
	t.Helper()
	err := admin(t, db).QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'bothy-consumer-wake' AND query LIKE 'LISTEN%'`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// silent is a waker that never signals.
type silent struct{}

func (silent) Run(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestConsumerWakesOnPoll(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	var idle atomic.Int64
	observe := engine.WithObserver(func(_ string, o engine.Outcome) {
		if o.End.Name == "idle" {
			idle.Add(1)
		}
	})
	e := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}", push), observe)
	ensure(t, e)
	stop := e.RunWith(t.Context(), silent{})
	waitUntil(t, "the first round was idle", func() bool { return idle.Load() > 0 })
	db.Append(t, 1)
	waitUntil(t, "the poll brings the jobs", func() bool { return cursorOf(t, db, "push") == 1 })
	if err := stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	wantExactlyOnce(t, db, "push", 1, 1, "alex", "sam")
}

// Case 34: what was sent while nobody listened is gone, and one look after connecting makes up for it.
func TestConsumerWakesAfterReconnect(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	proxy := enginetest.NewProxy(t, db.AppURL)
	cfg := configureWith(t, db.AppURL, "consumer: {poll_interval: 1h}", push)
	cfg.Database.ListenURL, cfg.Database.ListenReconnectBackoffCap = config.Secret(proxy.URL), 20*time.Millisecond
	e := open(t, cfg)
	ensure(t, e)
	runInBackground(t, e)
	for n := range int64(3) {
		waitUntil(t, "the engine listens", func() bool { return listeners(t, db) == 1 })
		proxy.Refuse()
		waitUntil(t, "the engine no longer listens", func() bool { return listeners(t, db) == 0 })
		db.Append(t, 1)
		if cursor := cursorOf(t, db, "push"); cursor != n {
			t.Errorf("cursor %d while nobody listens, want %d", cursor, n)
		}
		proxy.Restore()
		waitUntil(t, "the event is found after the reconnect", func() bool { return cursorOf(t, db, "push") == n+1 })
	}
	wantExactlyOnce(t, db, "push", 1, 3, "alex", "sam")
}
