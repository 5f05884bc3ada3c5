// SPDX-License-Identifier: Apache-2.0

package consumer_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/consumer"
)

// Case 87: one line when failing begins, one when it ends, and neither for what is no incident. The text of
// an error can quote an event, so it is not logged.
func TestRunnerLogsEdges(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	s := &script{outcomes: []consumer.Outcome{idle, failed, failed, locked, gap, locked, short, idle, gap}}
	run(t, s, &logs, func(_ *consumer.Runner, wake signals) {
		for range 8 {
			wake <- struct{}{}
			synctest.Wait()
		}
	})
	want := []string{
		`level=ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=error`,
		`level=INFO msg="event consumer recovered" bothy.consumer.name=push bothy.consumer.duration=0s`,
		`level=ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=consumer_gap`,
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(logs.String()), "\n")); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// Case 87: a consumer that fails and recovers every second for an hour is a handful of lines; what it settles at is
// told, whichever it is, and from then on every change is told again.
func TestRunnerDampsFlapping(t *testing.T) {
	t.Parallel()
	const (
		fails    = `level=ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=error`
		flaps    = `level=WARN msg="event consumer fails and recovers in turn: told again once that has settled" bothy.consumer.name=push error.type=error`
		recovers = `level=INFO msg="event consumer recovered" bothy.consumer.name=push bothy.consumer.duration=`
	)
	hour := slices.Repeat([]consumer.Outcome{failed, short}, 1800)
	calm := func(o consumer.Outcome) []consumer.Outcome { return slices.Repeat([]consumer.Outcome{o}, 601) }
	begin := []string{fails, recovers + "1s", fails, recovers + "1s", fails, recovers + "1s", flaps}
	for name, tt := range map[string]struct {
		outcomes []consumer.Outcome
		want     []string
	}{
		"without an end":      {hour, begin},
		"settled and well":    {slices.Concat(hour, calm(short), []consumer.Outcome{failed, short}), append(slices.Clip(begin), recovers+"1h9m53s", fails, recovers+"1s")},
		"settled and failing": {slices.Concat(hour, calm(failed), []consumer.Outcome{short}), append(slices.Clip(begin), fails, recovers+"1s")},
		"seldom": {
			slices.Concat(slices.Repeat(slices.Concat(calm(failed), []consumer.Outcome{short}), 2), []consumer.Outcome{failed, short, failed}),
			[]string{fails, recovers + "10m1s", fails, recovers + "10m1s", fails, recovers + "1s", fails},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var logs bytes.Buffer
			s := &script{outcomes: tt.outcomes}
			run(t, s, &logs, func(_ *consumer.Runner, wake signals) {
				for range len(tt.outcomes) - 1 {
					<-time.After(time.Second)
					wake <- struct{}{}
					synctest.Wait()
				}
			})
			if diff := cmp.Diff(tt.want, strings.Split(strings.TrimSpace(logs.String()), "\n")); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

// heldUp polls until the rounds of a consumer ended as given, and gives its log.
func heldUp(t *testing.T, outcomes ...consumer.Outcome) []string {
	t.Helper()
	var logs bytes.Buffer
	s := &script{outcomes: outcomes}
	run(t, s, &logs, func(*consumer.Runner, signals) {
		<-time.After(poll*time.Duration(len(outcomes)-1) + time.Second)
	})
	if logs.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSpace(logs.String()), "\n")
}

// Case 22: a transaction that keeps the cursor row is no failure, but not healthy for ever either. It is told
// once it has lasted for ten polls without a move of the cursor, and when it ends.
func TestRunnerTellsALongLock(t *testing.T) {
	t.Parallel()
	held := `level=WARN msg="event consumer held up: another transaction keeps its cursor locked" bothy.consumer.name=push error.type=cursor_locked`
	free := `level=INFO msg="event consumer no longer held up" bothy.consumer.name=push bothy.consumer.duration=`
	at := func(cursor int64) consumer.Outcome { o := locked; o.Cursor = cursor; return o }
	times := func(n int, o consumer.Outcome) []consumer.Outcome { return slices.Repeat([]consumer.Outcome{o}, n) }
	moving := make([]consumer.Outcome, 30)
	for i := range moving {
		moving[i] = at(int64(i / 5))
	}
	for name, tt := range map[string]struct {
		outcomes []consumer.Outcome
		want     []string
	}{
		"too short to tell":          {append(times(10, locked), idle), nil},
		"told once":                  {times(25, locked), []string{held}},
		"told when it ends":          {append(times(12, locked), idle), []string{held, free + "1m0s"}},
		"another worker makes a way": {moving, nil},
		"failures between say nothing": {
			slices.Concat(times(6, locked), times(1, failed), times(6, locked), times(1, short)),
			[]string{`level=ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=error`, held, free + "1m5s", `level=INFO msg="event consumer recovered" bothy.consumer.name=push bothy.consumer.duration=35s`},
		},
		"twice": {
			slices.Concat(times(11, locked), times(1, idle), times(11, locked), times(1, gap)),
			[]string{held, free + "55s", held, free + "55s", `level=ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=consumer_gap`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, heldUp(t, tt.outcomes...)); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

// A database that went back in time stops every consumer: each says so once, at once.
func TestRunnerTellsUnfinalized(t *testing.T) {
	t.Parallel()
	got := heldUp(t, idle, unfinalized, unfinalized, locked, unfinalized, failed, unfinalized, short, short)
	want := []string{
		`level=ERROR msg="event consumer stopped: the database was restored or promoted, and that is not finalized" bothy.consumer.name=push error.type=restore_not_finalized`,
		`level=ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=error`,
		`level=INFO msg="event consumer goes on: the restore is finalized" bothy.consumer.name=push bothy.consumer.duration=30s`,
		`level=INFO msg="event consumer recovered" bothy.consumer.name=push bothy.consumer.duration=10s`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// A batch that the server cannot do is halved until it passes, at once and told once. It grows again, and what
// fails to grow is tried ever more seldom.
func TestRunnerReducesABatchThatIsTooLarge(t *testing.T) {
	t.Parallel()
	did := short
	did.Events = 1
	t.Run("down to what passes", func(t *testing.T) {
		t.Parallel()
		var logs bytes.Buffer
		s := &script{outcomes: slices.Repeat([]consumer.Outcome{did}, 100), most: 30}
		run(t, s, &logs, func(_ *consumer.Runner, wake signals) {
			if diff := cmp.Diff([]int{100, 50, 25}, s.sizes()); diff != "" {
				t.Errorf("batches at once (-want +got):\n%s", diff)
			}
			for range 9 {
				wake <- struct{}{}
				synctest.Wait()
			}
			// 50 is tried after 1 round that did well, then after 2, then after 4
			if diff := cmp.Diff([]int{100, 50, 25, 50, 25, 25, 50, 25, 25, 25, 25, 50, 25, 25, 25}, s.sizes()); diff != "" {
				t.Errorf("batches (-want +got):\n%s", diff)
			}
			s.mu.Lock()
			s.most = 0 // the server has room again
			s.mu.Unlock()
			for range 60 {
				wake <- struct{}{}
				synctest.Wait()
			}
			if all := s.sizes(); all[len(all)-1] != 100 {
				t.Errorf("the last batch is %d, want the whole 100", all[len(all)-1])
			}
		})
		want := `level=WARN msg="event consumer takes smaller batches: the server could not do a whole one" bothy.consumer.name=push error.type=57014
level=INFO msg="event consumer takes whole batches again" bothy.consumer.name=push
`
		if diff := cmp.Diff(want, logs.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
	t.Run("a single event that is too large", func(t *testing.T) {
		t.Parallel()
		var logs bytes.Buffer
		s := &script{outcomes: slices.Repeat([]consumer.Outcome{large}, 100)}
		run(t, s, &logs, func(_ *consumer.Runner, wake signals) {
			wake <- struct{}{}
			synctest.Wait()
			if diff := cmp.Diff([]int{100, 50, 25, 12, 6, 3, 1, 1}, s.sizes()); diff != "" {
				t.Errorf("batches (-want +got):\n%s", diff)
			}
		})
		want := `level=WARN msg="event consumer takes smaller batches: the server could not do a whole one" bothy.consumer.name=push error.type=57014
level=ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=57014
`
		if diff := cmp.Diff(want, logs.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// A larger batch has done well once a round took more than half of it. A round over a single event says nothing of it,
// so when the batch then fails, it is still the attempt that failed, and the next one waits longer.
func TestRunnerTriesALargerBatchWithEvents(t *testing.T) {
	t.Parallel()
	for events, want := range map[int][]int{
		1:  {100, 50, 25, 50, 25, 25, 50, 50, 25, 25, 25, 25, 50, 25},
		40: {100, 50, 25, 50, 25, 25, 50, 50, 25, 25, 50, 25, 25, 25},
	} {
		did := short
		did.Events = events
		var logs bytes.Buffer
		s := &script{outcomes: slices.Repeat([]consumer.Outcome{did}, 100), most: 30}
		run(t, s, &logs, func(_ *consumer.Runner, wake signals) {
			for _, most := range []int{30, 30, 0, 30, 30, 30, 30, 30} {
				s.mu.Lock()
				s.most = most
				s.mu.Unlock()
				wake <- struct{}{}
				synctest.Wait()
			}
			if diff := cmp.Diff(want, s.sizes()[:len(want)]); diff != "" {
				t.Errorf("batches of rounds over %d events (-want +got):\n%s", events, diff)
			}
		})
	}
}
