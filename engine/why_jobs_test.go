// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
)

// After a restore the numbers are given out again: jobs of the abandoned history are not those of the event.
func TestWhyShowsOlderEpochs(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push"})
	db.Append(t, 1)
	wantRound(t, e, "push", "processed")
	var before string
	if err := admin(t, db).QueryRow(t.Context(), `SELECT sync_epoch::text FROM bothy.instance`).Scan(&before); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `UPDATE bothy.instance SET sync_epoch = gen_random_uuid(); UPDATE bothy.event_consumer_cursors SET last_seq = 0`)
	f := wantFate(t, why(t, e, 1, engine.WhyOptions{}), "push", engine.VerdictWaiting)
	if len(f.Older) != 1 || f.Older[0].Epoch != before || f.Older[0].Count != 2 || f.Jobs != nil {
		t.Errorf("jobs: %+v, older %+v; want two of the older epoch", f.Jobs, f.Older)
	}
	wantRound(t, e, "push", "processed")
	if f := wantFate(t, why(t, e, 1, engine.WhyOptions{}), "push", engine.VerdictCreated); f.Jobs.Count != 2 || len(f.Older) != 1 {
		t.Errorf("jobs: %+v, older %+v; want two of each epoch", f.Jobs, f.Older)
	}
}

func TestWhyListsTenUnlessAll(t *testing.T) {
	t.Parallel()
	many := make([]string, 12)
	for i := range many {
		many[i] = fmt.Sprintf("p%02d", i)
	}
	e, db := prepared(t, entry{name: "push", recipients: "{list: [" + strings.Join(many, ", ") + "]}"})
	db.Append(t, 2)
	f := wantFate(t, why(t, e, 1, engine.WhyOptions{}), "push", engine.VerdictWaiting)
	if f.Would.Count != 12 || len(f.Would.Recipients) != 10 {
		t.Errorf("would: %d, listed %d; want 12 and 10", f.Would.Count, len(f.Would.Recipients))
	}
	wantRound(t, e, "push", "processed")
	for all, listed := range map[bool]int{false: 10, true: 12} {
		f = wantFate(t, why(t, e, 1, engine.WhyOptions{All: all}), "push", engine.VerdictCreated)
		if f.Jobs.Count != 12 || len(f.Jobs.Jobs) != listed || f.Jobs.Jobs[9].Recipient != "p09" {
			t.Errorf("all %t: %d jobs, %d listed; want 12 and %d", all, f.Jobs.Count, len(f.Jobs.Jobs), listed)
		}
	}
}

// The jobs of one event are found among many by River's index on arguments.
func TestWhyIsQuickAmongManyJobs(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push"})
	db.Append(t, 1)
	wantRound(t, e, "push", "processed")
	db.Exec(t, `INSERT INTO public.river_job (kind, args, max_attempts, tags)
SELECT 'test.push', jsonb_build_object('seq', i, 'recipient', 'alex', 'epoch', 'e'), 3, '{push}' FROM generate_series(2, 40000) i; ANALYZE public.river_job`)
	before := scans(t, db)
	asking, err := engine.Open(t.Context(), configure(t, db, entry{name: "push"}))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	wantFate(t, why(t, asking, 1, engine.WhyOptions{}), "push", engine.VerdictCreated)
	t.Logf("one event among 40,000 jobs: %v", time.Since(start))
	asking.Close() // a session reports what it did when it ends
	waitUntil(t, "the index on arguments was used and the table not read through", func() bool {
		after := scans(t, db)
		if after[1] > before[1] {
			t.Fatalf("river_job was read through: %d scans, %d before", after[1], before[1])
		}
		return after[0] > before[0]
	})
}

// scans are those of the index on arguments, and of the whole table.
func scans(t testing.TB, db *enginetest.DB) (n [2]int64) {
	t.Helper()
	err := admin(t, db).QueryRow(t.Context(), `SELECT (SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'river_job_args_index'), (SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'river_job')`).Scan(&n[0], &n[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// between runs a function right before the first statement whose text holds a word.
type between struct {
	word string
	run  func()
	once sync.Once
}

func (b *between) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, b.word) {
		b.once.Do(b.run)
	}
	return ctx
}

func (b *between) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A round that commits while somebody asks is seen whole or not at all.
func TestWhyIsOneSnapshot(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	e, db := prepared(t, push)
	db.Append(t, 1)
	ran := false
	asking := open(t, configure(t, db, push), engine.WithTracer(&between{word: "river_job", run: func() {
		wantRound(t, e, "push", "processed")
		ran = true
	}}))
	f := wantFate(t, why(t, asking, 1, engine.WhyOptions{}), "push", engine.VerdictWaiting)
	if !ran || f.Jobs != nil || *f.Cursor != 0 {
		t.Errorf("a round ran in between: %t; got %+v, want what was before it", ran, f)
	}
	wantFate(t, why(t, asking, 1, engine.WhyOptions{}), "push", engine.VerdictCreated)
}
