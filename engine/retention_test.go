// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
)

// upkeep is an engine on a log with partitions of ten numbers, with its cursors at 0 and n events.
func upkeep(t *testing.T, n int, log *lines, entries ...entry) (*engine.Engine, *enginetest.DB) {
	t.Helper()
	db := database(t, entries...)
	// the partition of the template holds a million numbers
	db.Exec(t, `DO $$DECLARE p text; BEGIN FOR p IN SELECT name FROM bothy.event_log_partitions() LOOP EXECUTE 'DROP TABLE bothy.' || p; END LOOP; END$$`)
	e := open(t, configureWith(t, db.AppURL, "sync: {event_log_partition_size: 10, partitions_ahead: 1}\nconsumer: {poll_interval: 20ms}", entries...), engine.WithLogger(log.logger()))
	if err := e.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Append(t, n)
	return e, db
}

// age moves the clock past sync.event_retention, seen from the events up to a number.
func age(t *testing.T, db *enginetest.DB, through int) {
	t.Helper()
	db.Exec(t, `UPDATE bothy.event_log SET occurred_at = occurred_at - interval '31 days' WHERE seq <= $1`, through)
}

func firsts(t *testing.T, db *enginetest.DB) []int64 {
	t.Helper()
	rows, err := admin(t, db).Query(t.Context(), `SELECT first FROM bothy.event_log_partitions()`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Case 43: a consumer that retention overtook goes on at the first event that is left, and says once what it lost.
func TestConsumerRetentionLossSkipsAndLogs(t *testing.T) {
	t.Parallel()
	var log lines
	push, ready := entry{name: "push", batch: 100}, entry{name: "ready", batch: 100}
	e, db := upkeep(t, 25, &log, push, ready)
	wantRound(t, e, "ready", "processed")
	age(t, db, 20)
	if err := e.DropExpired(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := runInBackground(t, e)
	waitUntil(t, "the consumer reaches the head", func() bool { return cursorOf(t, db, "push") == 25 })
	db.Append(t, 1)
	waitUntil(t, "both go on", func() bool { return cursorOf(t, db, "push") == 26 && cursorOf(t, db, "ready") == 26 })
	stop()
	wantExactlyOnce(t, db, "push", 21, 26, "alex", "sam")
	wantExactlyOnce(t, db, "ready", 1, 26, "alex", "sam")
	want := `level=ERROR msg="event consumer lost events to retention" bothy.consumer.name=push bothy.event.seq=21`
	if got := log.String(); strings.Count(got, want) != 1 || strings.Count(got, "event consumer") != 1 {
		t.Errorf("log:\n%swant once and nothing else of a consumer: %s", got, want)
	}
}

// Only whole partitions go, oldest first, and never the one with the head: the log of a quiet year keeps its
// history.
func TestRetentionDropsWholePartitions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		events, old int
		want        []int64
	}{
		"nothing is old":                  {35, 0, []int64{1, 11, 21, 31, 41}},
		"one event of a partition is not": {35, 19, []int64{11, 21, 31, 41}},
		"a whole partition is":            {35, 20, []int64{21, 31, 41}},
		"everything is":                   {35, 35, []int64{31, 41}},
		"everything is, to the last row":  {40, 40, []int64{31, 41, 51}},
		"the log is empty":                {0, 0, []int64{1, 11}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log lines
			e, db := upkeep(t, tt.events, &log, entry{name: "push", batch: 100})
			if _, err := e.Store().MakePartitions(t.Context(), 10, 1); err != nil {
				t.Fatal(err)
			}
			age(t, db, tt.old)
			for range 2 {
				if err := e.DropExpired(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tt.want, firsts(t, db)); diff != "" {
				t.Errorf("partitions begin at (-want +got):\n%s", diff)
			}
			if head := db.Head(t); head != int64(tt.events) {
				t.Errorf("head %d, want %d", head, tt.events)
			}
			db.Append(t, 1)
			if o := wantRound(t, e, "push", map[bool]string{true: "lost", false: "processed"}[tt.want[0] > 1]); o.Lost != tt.want[0]-1 {
				t.Errorf("%d events lost, want %d", o.Lost, tt.want[0]-1)
			}
		})
	}
}

// Case 40: a reader keeps a partition from being dropped. Producers are not held up for longer than the short
// wait of the drop, which gives up and says so; later it passes.
func TestRetentionWaitsForNobody(t *testing.T) {
	t.Parallel()
	var log lines
	e, db := upkeep(t, 25, &log, entry{name: "push"})
	age(t, db, 20)
	reader := enginetest.Connect(t, db.AppURL)
	if _, err := reader.Exec(t.Context(), `BEGIN; SELECT count(*) FROM bothy.event_log`); err != nil {
		t.Fatal(err)
	}
	dropping := make(chan error)
	go func() { dropping <- e.DropExpired(context.WithoutCancel(t.Context())) }()
	producer := enginetest.Connect(t, db.ProducerURL)
	if _, err := producer.Exec(t.Context(), `SET lock_timeout = '5s'`); err != nil {
		t.Fatal(err)
	}
	var err error
	for waiting := true; waiting; {
		select {
		case err = <-dropping:
			waiting = false
		default:
			if _, err := producer.Exec(t.Context(), `SELECT bothy.append_event('order.created', '', '', NULL, NULL)`); err != nil {
				t.Fatalf("append while a partition is to be dropped: %v", err)
			}
		}
	}
	var typed interface{ ErrorType() string }
	if !errors.As(err, &typed) || typed.ErrorType() != "55P03" {
		t.Errorf("DropExpired = %v, want SQLSTATE 55P03", err)
	}
	if _, err := reader.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if err := e.DropExpired(t.Context()); err != nil || firsts(t, db)[0] != 21 {
		t.Errorf("DropExpired = %v, partitions begin at %v, want 21 first", err, firsts(t, db))
	}
}

// Several processes look after the log at once, while consumers run: each partition is dropped once, and no
// round fails.
func TestRetentionInSeveralProcesses(t *testing.T) {
	t.Parallel()
	var log lines
	e, db := upkeep(t, 205, &log, entry{name: "push", batch: 100})
	stop := runInBackground(t, e)
	waitUntil(t, "the consumer reaches the head", func() bool { return cursorOf(t, db, "push") == 205 })
	age(t, db, 200)
	var group errgroup.Group
	for range 4 {
		group.Go(func() error { return e.DropExpired(t.Context()) })
	}
	if err := group.Wait(); err != nil {
		t.Errorf("DropExpired: %v", err)
	}
	waitUntil(t, "all are dropped", func() bool { return e.DropExpired(t.Context()) == nil && firsts(t, db)[0] == 201 })
	db.Append(t, 3)
	waitUntil(t, "the consumer goes on", func() bool { return cursorOf(t, db, "push") == 208 })
	stop()
	wantExactlyOnce(t, db, "push", 1, 208, "alex", "sam")
	if got := log.String(); strings.Contains(got, "round failed") || strings.Contains(got, "lost events") {
		t.Errorf("log:\n%swant no failing round and no loss", got)
	}
}

// Case 42: a burst that is far larger than what was made ahead fails nobody, and afterwards the log has room
// again without waiting for the next minute.
func TestBurstLargerThanTheRoomAhead(t *testing.T) {
	t.Parallel()
	var log lines
	e, db := upkeep(t, 0, &log, entry{name: "push", batch: 100})
	stop := runInBackground(t, e)
	for range 10 {
		db.Append(t, 50)
	}
	waitUntil(t, "the consumer reaches the head", func() bool { return cursorOf(t, db, "push") == 500 })
	waitUntil(t, "the log has a whole partition ahead", func() bool { all := firsts(t, db); return all[len(all)-1] > 501 })
	stop()
	wantExactlyOnce(t, db, "push", 1, 500, "alex", "sam")
}
