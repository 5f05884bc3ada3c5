// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// oldToNew and retire decide without any look at what else is there: the refusals belong to the caller.
var oldToNew = postgres.CursorChange{Name: "old", Decide: func(c postgres.Cursors) (postgres.CursorStep, error) {
	at, has := c.Rows["old"]
	if !has {
		return postgres.CursorStep{Note: "no row"}, nil
	}
	return postgres.CursorStep{Action: postgres.ConsumerRenamed, Details: postgres.DeedDetails{LastSeq: &at, Head: &c.Head, To: "new"}}, nil
}}

func retire(name string) postgres.CursorChange {
	return postgres.CursorChange{Name: name, Decide: func(c postgres.Cursors) (postgres.CursorStep, error) {
		at := c.Rows[name]
		return postgres.CursorStep{Action: postgres.ConsumerRetired, Details: postgres.DeedDetails{LastSeq: &at, Head: &c.Head, Reason: "a test"}}, nil
	}}
}

// told collects what a change says it waits for.
type told struct {
	mu    sync.Mutex
	lines []string
	first chan struct{} // closed with the first line
}

func newTold() *told { return &told{first: make(chan struct{})} }

func (l *told) log(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == 0 {
		close(l.first)
	}
	l.lines = append(l.lines, line)
}

func cursorOptions(db *enginetest.DB, patience time.Duration, l *told) postgres.CursorOptions {
	return postgres.CursorOptions{
		AdminURL: db.AdminURL, Schema: enginetest.Schema, Owner: enginetest.OwnerRole, By: "alex", LockTimeout: patience, Log: l.log,
	}
}

// cursors are the rows, the names that are let in and the deeds, as text.
func cursors(t *testing.T, db *enginetest.DB) (got []string) {
	t.Helper()
	rows, err := db.Owner(t).Query(t.Context(), `SELECT 'row ' || name || ' ' || last_seq FROM bothy.event_consumer_cursors
UNION ALL SELECT 'names ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'event_consumer_cursors_name_check'
UNION ALL SELECT concat_ws(' ', action, subject, details, client) FROM bothy.audit_events WHERE action <> 'consumer.created' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestChangeCursor(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("old", "other"))
	db.Append(t, 5)
	app := db.App(t)
	must(t, app, `INSERT INTO bothy.event_consumer_cursors (name, last_seq) VALUES ('old', 3), ('other', 5)`)
	o := cursorOptions(db, time.Second, newTold())

	step, err := postgres.PreviewCursor(t.Context(), o, oldToNew)
	if err != nil || step.Details.To != "new" || *step.Details.LastSeq != 3 {
		t.Errorf("preview: %+v, %v; want a rename at 3", step, err)
	}
	step, deed, err := postgres.ChangeCursor(t.Context(), o, oldToNew)
	if err != nil || deed != 3 || step.Action != postgres.ConsumerRenamed {
		t.Fatalf("rename: %+v, deed %d, %v; want deed 3", step, deed, err)
	}
	want := []string{
		`consumer.renamed old {"by": "alex", "to": "new", "head": 5, "last_seq": 3} bothy-consumers`,
		`names CHECK ((name = ANY (ARRAY['new'::text, 'other'::text])))`, "row new 3", "row other 5",
	}
	if diff := cmp.Diff(want, cursors(t, db)); diff != "" {
		t.Errorf("after the rename (-want +got):\n%s", diff)
	}
	_, err = app.Exec(t.Context(), `INSERT INTO bothy.event_consumer_cursors (name) VALUES ('old')`)
	wantCode(t, err, "23514", "event_consumer_cursors_name_check")
	if step, deed, err = postgres.ChangeCursor(t.Context(), o, oldToNew); err != nil || deed != 0 || step.Note != "no row" {
		t.Errorf("rename again: %+v, deed %d, %v; want nothing done", step, deed, err)
	}

	if _, _, err := postgres.ChangeCursor(t.Context(), o, retire("new")); err != nil {
		t.Fatal(err)
	}
	want = []string{
		`consumer.renamed old {"by": "alex", "to": "new", "head": 5, "last_seq": 3} bothy-consumers`,
		`consumer.retired new {"by": "alex", "head": 5, "reason": "a test", "last_seq": 3} bothy-consumers`,
		`names CHECK ((name = ANY (ARRAY['other'::text])))`, "row other 5",
	}
	if diff := cmp.Diff(want, cursors(t, db)); diff != "" {
		t.Errorf("after the retirement (-want +got):\n%s", diff)
	}
	auditNumbers(t, db)
}

// The last name can go as well: a constraint that allows nothing is still one.
func TestRetireTheLastConsumer(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("only"))
	must(t, db.App(t), `INSERT INTO bothy.event_consumer_cursors (name) VALUES ('only')`)
	if _, _, err := postgres.ChangeCursor(t.Context(), cursorOptions(db, time.Second, newTold()), retire("only")); err != nil {
		t.Fatal(err)
	}
	_, err := db.App(t).Exec(t.Context(), `INSERT INTO bothy.event_consumer_cursors (name) VALUES ('only')`)
	wantCode(t, err, "23514", "event_consumer_cursors_name_check")
}

// A refusal and a failure of the audit leave everything as it was.
func TestChangeCursorIsWhole(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("old"))
	must(t, db.App(t), `INSERT INTO bothy.event_consumer_cursors (name) VALUES ('old')`)
	before := cursors(t, db)
	o := cursorOptions(db, time.Second, newTold())
	refusal := errors.New("not today")
	_, _, err := postgres.ChangeCursor(t.Context(), o, postgres.CursorChange{Name: "old", Decide: func(postgres.Cursors) (postgres.CursorStep, error) {
		return postgres.CursorStep{}, refusal
	}})
	if err != refusal { //nolint:errorlint // as it is, without a word around it
		t.Errorf("refused: got %v, want %v", err, refusal)
	}
	db.Exec(t, `DELETE FROM bothy.audit_seq`)
	_, _, err = postgres.ChangeCursor(t.Context(), o, oldToNew)
	wantCode(t, err, postgres.CodeNoCounter, "counter row of the audit")
	if diff := cmp.Diff(before, cursors(t, db)); diff != "" {
		t.Errorf("after two failures (-want +got):\n%s", diff)
	}
}

// hold runs a transaction that a round would: it has the row, or only the table.
func hold(t *testing.T, db *enginetest.DB, sql string) pgx.Tx {
	t.Helper()
	tx := begin(t, enginetest.Connect(t, db.AppURL), pgx.TxOptions{})
	must(t, tx, sql)
	return tx
}

func TestChangeCursorWaitsForRounds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		round string
		want  string
	}{
		"of the consumer": {`SELECT FROM bothy.event_consumer_cursors WHERE name = 'old' FOR UPDATE`, `a round of consumer "old" is running: waiting up to 1m0s for its end`},
		"of another":      {`SELECT FROM bothy.event_consumer_cursors WHERE name = 'other' FOR UPDATE`, "rounds are running: waiting for a moment without one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := enginetest.New(t, enginetest.WithConsumers("old", "other"))
			db.Append(t, 1)
			must(t, db.App(t), `INSERT INTO bothy.event_consumer_cursors (name) VALUES ('old'), ('other')`)
			round := hold(t, db, tt.round)
			said := newTold()
			done := make(chan error, 1)
			go func() {
				_, _, err := postgres.ChangeCursor(context.Background(), cursorOptions(db, time.Minute, said), oldToNew)
				done <- err
			}()
			select {
			case <-said.first:
			case err := <-done:
				t.Fatalf("ended before the round: %v", err)
			}
			must(t, round, `UPDATE bothy.event_consumer_cursors SET last_seq = 1`+strings.TrimSuffix(tt.round[strings.Index(tt.round, " WHERE"):], " FOR UPDATE"))
			if err := round.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(said.lines, []string{tt.want}) {
				t.Errorf("said %q, want %q", said.lines, tt.want)
			}
			got := cursors(t, db)
			if name == "of the consumer" && !slices.Contains(got, "row new 1") { // what the round did counts
				t.Errorf("after the round: %q, want a row new at 1", got)
			}
		})
	}
}

func TestChangeCursorGivesUp(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("old"))
	must(t, db.App(t), `INSERT INTO bothy.event_consumer_cursors (name) VALUES ('old')`)
	before := cursors(t, db)
	round := hold(t, db, `SELECT FROM bothy.event_consumer_cursors FOR UPDATE`)
	_, _, err := postgres.ChangeCursor(t.Context(), cursorOptions(db, 20*time.Millisecond, newTold()), oldToNew)
	want := `a round of consumer "old" has not ended within database.lock_timeout (20ms): nothing was changed; run the command again, or stop the engine for it`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := round.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, cursors(t, db)); diff != "" {
		t.Errorf("after giving up (-want +got):\n%s", diff)
	}
}

// Two people at once: one renames, the other finds it done.
func TestRenameTwiceAtOnce(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("old"))
	must(t, db.App(t), `INSERT INTO bothy.event_consumer_cursors (name) VALUES ('old')`)
	var wg sync.WaitGroup
	deeds := make([]int64, 4)
	for i := range deeds {
		wg.Go(func() {
			var err error
			if _, deeds[i], err = postgres.ChangeCursor(context.Background(), cursorOptions(db, time.Minute, newTold()), oldToNew); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	slices.Sort(deeds)
	if !slices.Equal(deeds, []int64{0, 0, 0, 2}) {
		t.Errorf("deeds: got %v, want one that is not 0", deeds)
	}
}
