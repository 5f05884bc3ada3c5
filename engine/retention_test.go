// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
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

// abandon makes the consumers look as if they had not moved for long, and moves the clock past the hour that
// partitions are kept for consumers that do not.
func abandon(t *testing.T, db *enginetest.DB) {
	t.Helper()
	db.Exec(t, `UPDATE bothy.event_consumer_cursors SET updated_at = updated_at - interval '31 days'`)
	db.Exec(t, `UPDATE bothy.event_log_hold SET since = clock_timestamp() - interval '61 minutes', seen = clock_timestamp()`)
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
	abandon(t, db)
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

// What a consumer lost is recorded in the round that skips it, and told for ever, also under a later name. Only a
// round can record it, and only what is true.
func TestLossIsRecorded(t *testing.T) {
	t.Parallel()
	var log lines
	e, db := upkeep(t, 25, &log, entry{name: "push", batch: 100})
	age(t, db, 20)
	abandon(t, db)
	if err := e.DropExpired(t.Context()); err != nil {
		t.Fatal(err)
	}
	app := enginetest.Connect(t, db.AppURL)
	refused := func(sql string) {
		t.Helper()
		if _, err := app.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: got no error, want one", sql)
		}
	}
	const round = `BEGIN; SELECT set_config('bothy.in_round', 'push', true); `
	refused(`SELECT bothy.record_loss('push', 1, 20)`)
	for _, lie := range []string{"2, 20", "1, 21", "1, 0", "1, NULL"} {
		refused(round + `SELECT bothy.record_loss('push', ` + lie + `); COMMIT`)
		if _, err := app.Exec(t.Context(), `ROLLBACK`); err != nil {
			t.Fatal(err)
		}
	}
	wantRound(t, e, "push", "lost")
	for seq, want := range map[int64]engine.Verdict{1: engine.VerdictLost, 20: engine.VerdictLost, 21: engine.VerdictCreated} {
		told, err := e.Why(t.Context(), seq, engine.WhyOptions{})
		if err != nil || told.Consumers[0].Verdict != want {
			t.Errorf("why %d: %+v, %v, want %s", seq, told.Consumers, err, want)
		}
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
			abandon(t, db)
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

// M7-04 note 3: on a database that was restored and is not finalized nothing is dropped. Without the restore
// guard nothing is compared.
func TestRetentionKeepsWhatIsNotFinalized(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		database, change string
		want             int64
	}{
		"another cluster":          {"", `UPDATE bothy.instance SET pg_system_identifier = 1`, 1},
		"another timeline":         {"", `UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id + 1`, 1},
		"the same":                 {"", ``, 21},
		"without an identity":      {"", `UPDATE bothy.instance SET pg_system_identifier = NULL, pg_timeline_id = NULL`, 21},
		"the restore guard is off": {"  restore_guard: off\n", `UPDATE bothy.instance SET pg_system_identifier = 1`, 21},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log lines
			e, db := upkeep(t, 25, &log, entry{name: "push"})
			if tt.database != "" {
				e = open(t, configureWith(t, db.AppURL, tt.database, entry{name: "push"}), engine.WithLogger(log.logger()))
			}
			age(t, db, 20)
			abandon(t, db)
			if tt.change != "" {
				db.Exec(t, tt.change)
			}
			if err := e.DropExpired(t.Context()); err != nil || firsts(t, db)[0] != tt.want {
				t.Errorf("DropExpired = %v, partitions begin at %v, want %d first", err, firsts(t, db), tt.want)
			}
		})
	}
}

// After a standstill that was longer than the retention, the consumers read first. What they have read goes then,
// and nothing is lost.
func TestRetentionLetsConsumersCatchUp(t *testing.T) {
	t.Parallel()
	var log lines
	_, db := upkeep(t, 45, &log, entry{name: "push", batch: 1})
	age(t, db, 40)
	db.Exec(t, `UPDATE bothy.event_consumer_cursors SET updated_at = updated_at - interval '31 days'`)
	db.Exec(t, `UPDATE bothy.event_log_hold SET since = clock_timestamp() - interval '31 days', seen = clock_timestamp() - interval '31 days'`)
	e := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}", entry{name: "push", batch: 1}),
		engine.WithLogger(log.logger()), engine.WithMaintenance(5*time.Millisecond))
	stop := runInBackground(t, e)
	waitUntil(t, "the consumer reaches the head", func() bool { return cursorOf(t, db, "push") == 45 })
	waitUntil(t, "what is read is dropped", func() bool { return firsts(t, db)[0] == 41 })
	stop()
	wantExactlyOnce(t, db, "push", 1, 45, "alex", "sam")
	if got := log.String(); strings.Contains(got, "before consumers had read") || strings.Contains(got, "lost events") {
		t.Errorf("log:\n%swant no loss", got)
	}
}

// A partition that somebody has still to read is kept for an hour, and for one retention while who lacks it makes
// headway; with retention_policy hold for ever. It is told before anything is lost.
func TestRetentionKeepsUnreadPartitions(t *testing.T) {
	t.Parallel()
	const moved = `UPDATE bothy.event_consumer_cursors SET updated_at = clock_timestamp()`
	const stands = `UPDATE bothy.event_consumer_cursors SET updated_at = clock_timestamp() - interval '61 minutes'`
	held := func(since string) string {
		return `UPDATE bothy.event_log_hold SET since = clock_timestamp() - interval '` + since + `', seen = clock_timestamp()`
	}
	const kept = `level=WARN msg="event log partitions older than sync.event_retention kept: consumers have still to read them" first=1 last=10 consumers=[push]`
	const lost = `level=WARN msg="event log partition dropped before consumers had read it" first=1 last=10 consumers=[push]`
	for name, tt := range map[string]struct {
		policy string
		state  []string
		want   int64
		log    string
	}{
		"stands, seen for the first time":  {"skip", []string{stands}, 1, kept + " until="},
		"stands, within the hour":          {"skip", []string{stands, held("59 minutes")}, 1, kept + " until="},
		"stands, after the hour":           {"skip", []string{stands, held("61 minutes")}, 21, lost},
		"nobody looked in between":         {"skip", []string{stands, held("61 minutes"), `UPDATE bothy.event_log_hold SET seen = seen - interval '11 minutes'`}, 1, kept + " until="},
		"makes headway":                    {"skip", []string{moved, held("29 days")}, 1, kept + " until="},
		"makes headway, after a retention": {"skip", []string{moved, held("31 days")}, 21, lost},
		"is held":                          {"hold", []string{stands, held("99 days")}, 1, kept + "\n"},
		"is not declared any more, stands": {"hold", []string{stands, held("99 days"), `UPDATE bothy.event_consumer_cursors SET name = 'other' WHERE name = 'push'`}, 21, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log lines
			_, db := upkeep(t, 25, &log, entry{name: "push"}, entry{name: "other"})
			db.Exec(t, `DELETE FROM bothy.event_consumer_cursors WHERE name = 'other'`)
			age(t, db, 20)
			for _, sql := range tt.state {
				db.Exec(t, sql)
			}
			e := open(t, configureWith(t, db.AppURL, "sync: {retention_policy: "+tt.policy+"}", entry{name: "push"}), engine.WithLogger(log.logger()))
			for range 2 {
				if err := e.DropExpired(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := firsts(t, db)[0]; got != tt.want {
				t.Errorf("partitions begin at %d, want %d", got, tt.want)
			}
			if got := log.String(); !strings.Contains(got, tt.log) || tt.log == "" && strings.Contains(got, "WARN") {
				t.Errorf("log:\n%swant: %s", got, tt.log)
			}
		})
	}
}

// The app cannot shorten the retention that the owner set.
func TestRetentionIsTheOwners(t *testing.T) {
	t.Parallel()
	var log lines
	e, db := upkeep(t, 25, &log, entry{name: "push", batch: 100})
	wantRound(t, e, "push", "processed")
	db.Exec(t, `UPDATE bothy.event_log SET occurred_at = occurred_at - interval '2 hours' WHERE seq <= 20`)
	app := enginetest.Connect(t, db.AppURL)
	drop := func() {
		t.Helper()
		if _, err := app.Exec(t.Context(), `SELECT bothy.drop_expired_partition('1 hour', '{}', false, NULL, NULL)`); err != nil {
			t.Fatal(err)
		}
	}
	drop()
	if got := firsts(t, db)[0]; got != 1 {
		t.Errorf("partitions begin at %d, want 1: the retention is 720 hours", got)
	}
	o := engine.MigrateOptions(configureWith(t, db.AppURL, "sync: {event_retention: 1h}\nconsumer: {pending_alert_after: 1m}", entry{name: "push", batch: 100}))
	o.AdminURL, o.Owner, o.App = db.AdminURL, enginetest.OwnerRole, enginetest.AppRole
	report, err := postgres.Migrate(t.Context(), o)
	if err != nil || report.RetentionSet != time.Hour {
		t.Fatalf("Migrate set the retention %v (%v), want 1h", report.RetentionSet, err)
	}
	if report, err := postgres.Migrate(t.Context(), o); err != nil || report.Changed() {
		t.Errorf("Migrate again changed %+v (%v), want nothing", report, err)
	}
	drop()
	if got := firsts(t, db)[0]; got != 11 {
		t.Errorf("partitions begin at %d, want 11", got)
	}
}

// Case 40: a reader keeps a partition from being dropped. Producers are not held up for longer than the short
// wait of the drop, which gives up and says so; later it passes.
func TestRetentionWaitsForNobody(t *testing.T) {
	t.Parallel()
	var log lines
	e, db := upkeep(t, 25, &log, entry{name: "push"})
	age(t, db, 20)
	abandon(t, db)
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
