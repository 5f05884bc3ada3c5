// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"testing"
	"time"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

func observe(t *testing.T, s *postgres.Store) postgres.Observation {
	t.Helper()
	o, err := s.Observe(t.Context())
	if err != nil {
		t.Fatalf("Observe: %v", err)
	}
	return o
}

// One look sees the log, the identity and every consumer, and also says where the log stands when there is none.
func TestObserve(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("push", "archive"))
	s := openStore(t, db.AppURL)
	db.Append(t, 3)
	if o := observe(t, s); o.Head != 3 || len(o.Consumers) != 0 || o.Partitions == 0 || o.Headroom <= 0 || o.Epoch == "" {
		t.Errorf("without a consumer: %+v, want head 3, partitions, headroom and the epoch", o)
	}
	if err := s.Ensure(t.Context(), []string{"push"}); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `INSERT INTO bothy.event_consumer_cursors (name, last_seq) VALUES ('archive', 1)`)
	o := observe(t, s)
	if len(o.Consumers) != 2 || o.Consumers[0].Name != "archive" || o.Consumers[1].Name != "push" {
		t.Fatalf("consumers %+v, want archive and push", o.Consumers)
	}
	archive, push := o.Consumers[0], o.Consumers[1]
	if archive.Lag() != 2 || archive.PendingAge <= 0 || push.Lag() != 0 || push.PendingAge != 0 {
		t.Errorf("archive %+v, push %+v; want lags 2 and 0, and an age for archive only", archive, push)
	}
	if !o.Finalized() || !o.Stored.Same(o.Current) || o.Current.Database == 0 {
		t.Errorf("stored %v, current %v: want them the same", o.Stored, o.Current)
	}
}

// Case 80: the age is taken by one clock, so an event from the future has no negative age, and one that a producer
// dated back is as old as the log says.
func TestObserveUsesOneClock(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("push"))
	s := openStore(t, db.AppURL)
	if err := s.Ensure(t.Context(), []string{"push"}); err != nil {
		t.Fatal(err)
	}
	db.Append(t, 1)
	for _, c := range []struct {
		occurred string
		low      time.Duration
		high     time.Duration
	}{
		{"clock_timestamp() + interval '5 minutes'", 0, 0},
		{"clock_timestamp() - interval '1 hour'", time.Hour, time.Hour + time.Minute},
	} {
		db.Exec(t, `UPDATE bothy.event_log SET event_time = clock_timestamp() - interval '1 year', occurred_at = `+c.occurred)
		if age := observe(t, s).Consumers[0].PendingAge; age < c.low || age > c.high {
			t.Errorf("occurred at %s: age %v, want %v to %v", c.occurred, age, c.low, c.high)
		}
	}
}

// A cursor above the head, which a restore can leave, has no negative lag.
func TestObserveCursorAhead(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("push"))
	db.Exec(t, `INSERT INTO bothy.event_consumer_cursors (name, last_seq) VALUES ('push', 100)`)
	if got := observe(t, openStore(t, db.AppURL)).Consumers[0]; got.Lag() != 0 || got.PendingAge != 0 {
		t.Errorf("%+v: want lag and age 0", got)
	}
}

// A look that waits for a lock is given up by the server, so that looks do not queue up.
func TestObserveGivesUpOnALock(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("push"))
	s, err := postgres.Open(t.Context(), postgres.Options{URL: db.AppURL, Schema: enginetest.Schema, LockTimeout: 50 * time.Millisecond, StatementTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	tx, err := enginetest.Connect(t, db.AdminURL).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK TABLE bothy.event_consumer_cursors IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Observe(t.Context()); err == nil {
		t.Error("Observe saw through the lock")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	observe(t, s)
}

// Another database than the one whose history the cursors follow is seen.
func TestObserveUnfinalized(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	db.Exec(t, `UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id + 1`)
	if o := observe(t, openStore(t, db.AppURL)); o.Finalized() {
		t.Errorf("stored %v, current %v: counted as finalized", o.Stored, o.Current)
	}
}

func TestReach(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	s := openStore(t, db.AppURL)
	if err := s.Reach(t.Context()); err != nil {
		t.Errorf("Reach: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Reach(ctx); err == nil {
		t.Error("Reach answers although its context is cancelled")
	}
}

// The oldest event is the lowest that retention has left, with its age by the clock of the database.
func TestOldest(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	s := openStore(t, db.AppURL)
	if o, err := s.Oldest(t.Context()); err != nil || o != nil {
		t.Errorf("of an empty log: %+v, %v; want neither", o, err)
	}
	db.Append(t, 3)
	db.Exec(t, `DELETE FROM bothy.event_log WHERE seq = 1`)
	db.Exec(t, `UPDATE bothy.event_log SET occurred_at = clock_timestamp() - seq * interval '1 hour'`)
	o, err := s.Oldest(t.Context())
	if err != nil || o == nil || o.Seq != 2 {
		t.Fatalf("Oldest: %+v, %v; want number 2", o, err)
	}
	if age := o.Now.Sub(o.At); age < 2*time.Hour || age > 2*time.Hour+10*time.Minute {
		t.Errorf("its age is %v, want two hours", age)
	}
	db.Exec(t, `DROP TABLE bothy.event_log CASCADE`)
	if _, err := s.Oldest(t.Context()); err == nil {
		t.Error("without a log: no error")
	}
}
