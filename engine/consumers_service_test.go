// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
)

// The connection that listens is ended again and again while producers append: it comes back each time, and every
// event has its jobs once.
func TestConsumerListenLossLosesNothing(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", batch: 10}
	db := database(t, push)
	cfg := configureWith(t, db.AppURL, "consumer: {poll_interval: 1h}", push) // only a wake-up brings a round
	cfg.Database.ListenReconnectBackoffCap = 20 * time.Millisecond
	e := open(t, cfg)
	ensure(t, e)
	stop := runInBackground(t, e)
	const losses, producers = 5, 3
	var appended atomic.Int64
	appending, enough := context.WithCancel(t.Context())
	done := make(chan error, producers)
	for range producers {
		conn := enginetest.Connect(t, db.ProducerURL)
		go func() {
			for appending.Err() == nil {
				if _, err := conn.Exec(context.WithoutCancel(appending), `SELECT bothy.append_event('order.paid', 'order', '1', '{}', '{}')`); err != nil {
					done <- err
					return
				}
				appended.Add(1)
			}
			done <- nil
		}()
	}
	for range losses {
		waitUntil(t, "the engine listens", func() bool { return listeners(t, db) == 1 })
		before := appended.Load()
		db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'bothy-consumer-wake'`)
		waitUntil(t, "producers go on", func() bool { return appended.Load() > before })
	}
	enough()
	for range producers {
		if err := <-done; err != nil {
			t.Errorf("append: %v", err)
		}
	}
	waitUntil(t, "the consumer has passed everything", func() bool { return cursorOf(t, db, "push") == appended.Load() })
	stop()
	wantExactlyOnce(t, db, "push", 1, appended.Load(), "alex", "sam")
}

// A row whose number leaves a gap stops the consumer: no job, no move, one line for all the rounds that fail, and one
// when the hole is closed.
func TestConsumerHoleFailsClosed(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", batch: 10}
	db := database(t, push)
	var log lines
	var gaps atomic.Int64
	e := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}", push), engine.WithLogger(log.logger()),
		engine.WithObserver(func(_ string, o engine.Outcome) {
			if o.End.Name == "gap" {
				gaps.Add(1)
			}
		}))
	ensure(t, e)
	// There is an event before the hole, so retention does not explain it.
	db.Exec(t, `INSERT INTO bothy.event_log (seq, id, type) VALUES (2, gen_random_uuid(), 'order.paid'), (4, gen_random_uuid(), 'order.paid')`)
	db.Exec(t, `UPDATE bothy.event_consumer_cursors SET last_seq = 2`)
	db.Exec(t, `UPDATE bothy.event_seq SET seq = 4`)
	stop := runInBackground(t, e)
	waitUntil(t, "several rounds found the hole", func() bool { return gaps.Load() >= 3 })
	if cursor, jobs := cursorOf(t, db, "push"), len(jobsOf(t, db, "push")); cursor != 2 || jobs != 0 {
		t.Errorf("cursor %d and %d jobs before the hole, want 2 and 0", cursor, jobs)
	}
	db.Exec(t, `INSERT INTO bothy.event_log (seq, id, type) VALUES (3, gen_random_uuid(), 'order.paid')`)
	waitUntil(t, "the consumer has passed everything", func() bool { return cursorOf(t, db, "push") == 4 })
	waitUntil(t, "it is told as recovered", func() bool { return strings.Contains(log.String(), "event consumer recovered") })
	stop()
	wantExactlyOnce(t, db, "push", 3, 4, "alex", "sam")
	var told []string
	for line := range strings.Lines(log.String()) {
		if _, line, is := strings.Cut(strings.TrimSpace(line), " level="); is && strings.Contains(line, "event consumer") {
			told = append(told, duration.ReplaceAllString(line, ""))
		}
	}
	want := []string{
		`ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=consumer_gap`,
		`INFO msg="event consumer recovered" bothy.consumer.name=push`,
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// A handler that appends an event fails its round: a consumer that fed itself would never end.
func TestConsumerRoundRejectsAppendedEvents(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: "{handler: feeds}"}
	db := database(t, push)
	e := open(t, configure(t, db, push))
	register(t, e, "feeds", func(ctx context.Context, tx *engine.HandlerTx, ev engine.Event) ([]string, error) {
		var id string
		err := tx.QueryRow(ctx, `SELECT bothy.append_event('order.fed', 'order', '1', '{}', '{}')::text`).Scan(&id)
		return []string{"alex"}, err
	})
	ensure(t, e)
	db.Append(t, 3)
	o := wantRound(t, e, "push", "failed")
	if o.ErrorType() != "BT001" {
		t.Errorf("error.type %q of %v, want BT001", o.ErrorType(), o.Err)
	}
	var events int64
	if err := admin(t, db).QueryRow(t.Context(), `SELECT count(*) FROM bothy.event_log`).Scan(&events); err != nil || events != 3 {
		t.Errorf("%d events, %v, want the 3 that were there", events, err)
	}
	if cursor, jobs := cursorOf(t, db, "push"), len(jobsOf(t, db, "push")); cursor != 0 || jobs != 0 {
		t.Errorf("cursor %d and %d jobs, want none", cursor, jobs)
	}
}

// No round runs before River's tables were looked at: a worker whose jobs would have no place does not start, and makes no
// cursor.
func TestWorkerRoleStartsConsumersAfterRiver(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	db.Exec(t, `ALTER TABLE public.river_migration RENAME TO moved`)
	db.Append(t, 1)
	var rounds atomic.Int64
	e, err := engine.Open(t.Context(), configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}", push),
		engine.WithObserver(func(string, engine.Outcome) { rounds.Add(1) }))
	if err == nil {
		err = e.Run(t.Context(), engine.RoleWorker)
		e.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "River") {
		t.Errorf("a start without River's tables: %v, want it refused by name", err)
	}
	var cursors int64
	if scan := admin(t, db).QueryRow(t.Context(), `SELECT count(*) FROM bothy.event_consumer_cursors`).Scan(&cursors); scan != nil || cursors != 0 || rounds.Load() != 0 {
		t.Errorf("%d cursors and %d rounds, %v, want none", cursors, rounds.Load(), scan)
	}
	db.Exec(t, `ALTER TABLE public.moved RENAME TO river_migration`)
	again := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}", push))
	stop := runInBackground(t, again)
	waitUntil(t, "there is a cursor", func() bool {
		err := admin(t, db).QueryRow(t.Context(), `SELECT count(*) FROM bothy.event_consumer_cursors`).Scan(&cursors)
		return err == nil && cursors == 1
	})
	db.Append(t, 1)
	waitUntil(t, "it works", func() bool { return cursorOf(t, db, "push") == 2 })
	stop()
}

// Role api makes no cursor and runs no round, whatever waits.
func TestApiRoleStartsNoConsumers(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	var rounds atomic.Int64
	var log lines
	e := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}\nhttp: {listen: '127.0.0.1:0'}", push), engine.WithLogger(log.logger()),
		engine.WithObserver(func(string, engine.Outcome) { rounds.Add(1) }))
	db.Append(t, 1)
	base, stop := serving(t, e, engine.RoleAPI)
	waitUntil(t, "it is ready", isReady(t, base))
	var cursors int64
	if err := admin(t, db).QueryRow(t.Context(), `SELECT count(*) FROM bothy.event_consumer_cursors`).Scan(&cursors); err != nil || cursors != 0 {
		t.Errorf("%d cursors, %v, want none", cursors, err)
	}
	if n := listeners(t, db); n != 0 || rounds.Load() != 0 {
		t.Errorf("%d listeners and %d rounds, want none", n, rounds.Load())
	}
	stop()
}

// The consumers stop before anything that they need: the last round still commits, is counted and answers, the page says
// that the process is not ready, and only then the process ends.
func TestConsumerStopStepPhase(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: "{handler: hold}"}
	db := database(t, push)
	var log lines
	e := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}\nhttp: {listen: '127.0.0.1:0'}", push), engine.WithLogger(log.logger()))
	begun, release := make(chan struct{}, 1), make(chan struct{})
	register(t, e, "hold", func(ctx context.Context, _ *engine.HandlerTx, _ engine.Event) ([]string, error) {
		begun <- struct{}{}
		select {
		case <-release:
			return []string{"alex", "sam"}, nil
		case <-ctx.Done():
			return nil, errors.New("cancelled")
		}
	})
	ensure(t, e)
	db.Append(t, 1)
	ctx, signal := context.WithCancel(t.Context())
	defer signal()
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx, engine.RoleAll) }()
	next(t, begun)
	waitUntil(t, "the listener is open", func() bool { return e.Address() != "" })
	base := "http://" + e.Address()
	signal()
	waitUntil(t, "it is not ready, and says why", func() bool {
		return fmt.Sprint(readiness(t, base).Reasons) == "[stopping]"
	})
	select {
	case err := <-ended:
		t.Errorf("the process ended while a round ran: %v", err)
	default:
	}
	close(release)
	if err := next(t, ended); err != nil {
		t.Errorf("Run: %v", err)
	}
	wantExactlyOnce(t, db, "push", 1, 1, "alex", "sam")
	if got := log.String(); strings.Contains(got, "round failed") {
		t.Errorf("log:\n%sa stop is no failure", got)
	}
}
