// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
	core "example.com/bothy/engine/round"
)

// rehearsing is an engine on a database with a table for rows. It connects as the superuser, as tests of
// consumers do.
func rehearsing(t *testing.T, entries ...entry) (*engine.Engine, *enginetest.DB) {
	t.Helper()
	db := database(t, entries...)
	db.Exec(t, `CREATE TABLE public.watchers (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, person text NOT NULL DEFAULT 'nobody', types text[] NOT NULL DEFAULT '{}', more jsonb)`)
	e := open(t, configureWith(t, db.AdminURL, "", entries...))
	return e, db
}

const watching = `{query: "SELECT b.seq, w.person AS recipient FROM batch b JOIN public.watchers w ON b.type = ANY (w.types)"}`

func row(table, values string) engine.Row {
	return engine.Row{Table: table, Values: json.RawMessage(values)}
}

func events(types ...string) []engine.Event {
	list := make([]engine.Event, len(types))
	for i, kind := range types {
		list[i] = engine.Event{
			Seq: int64(i + 1), ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i+1), Type: kind, Payload: json.RawMessage(`{"n": 1}`),
		}
	}
	return list
}

func rehearse(t *testing.T, e *engine.Engine, scene engine.Scene, names ...string) []engine.Rehearsed {
	t.Helper()
	got, err := e.Rehearse(t.Context(), scene, names)
	if err != nil {
		t.Fatalf("Rehearse(%+v, %v): %v", scene, names, err)
	}
	return got
}

func targetsOf(r engine.Rehearsed) []string {
	var list []string
	for _, target := range r.Targets {
		list = append(list, fmt.Sprintf("%d %s", target.Seq, target.Recipient))
	}
	return list
}

// What a rehearsal puts into tables is there for its rules, and gone for the next one.
func TestRehearseLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	e, db := rehearsing(t, entry{name: "push", recipients: watching, types: "[order.*]"})
	scene := engine.Scene{
		Rows: []engine.Row{
			row("public.watchers", `{"id": 7, "person": "alex", "types": ["order.paid", "order.sent"], "more": {"a": [1, 2.50]}}`),
			row(`"public".WATCHERS`, `{"person": "sam", "types": ["order.sent"]}`),
			row("watchers", `{}`),
		},
		Events: events("order.paid", "user.left", "order.sent"),
	}
	for range 2 {
		got := rehearse(t, e, scene, "push")
		if diff := cmp.Diff([]string{"1 alex", "3 alex", "3 sam"}, targetsOf(got[0])); diff != "" || got[0].Err != nil {
			t.Errorf("targets (-want +got), %v:\n%s", got[0].Err, diff)
		}
	}
	scene.Rows = nil
	if got := rehearse(t, e, scene, "push"); len(got[0].Targets) > 0 {
		t.Errorf("without rows: got %v, want no target", got[0].Targets)
	}
	var left int
	err := admin(t, db).QueryRow(t.Context(), `SELECT (SELECT count(*) FROM public.watchers) + (SELECT count(*) FROM bothy.event_log)
	+ (SELECT count(*) FROM public.river_job) + (SELECT count(*) FROM bothy.event_consumer_cursors) + (SELECT seq FROM bothy.event_seq)`).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("rows that rehearsals left: got %d (%v), want none", left, err)
	}
}

// A rule sees batches of the size that its consumer declares, cut as rounds are.
func TestRehearseRunsRoundAfterRound(t *testing.T) {
	t.Parallel()
	first := `{query: "SELECT min(b.seq) AS seq, 'first' AS recipient FROM batch b HAVING count(*) > 0"}`
	e, _ := rehearsing(t, entry{name: "push", recipients: first, batch: 2})
	got := rehearse(t, e, engine.Scene{Events: events("a", "b", "c", "d", "e")}, "push")
	if diff := cmp.Diff([]string{"1 first", "3 first", "5 first"}, targetsOf(got[0])); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}

// A rule that fails says where, and neither it nor what a handler wrote is seen by the consumer after it.
func TestRehearseKeepsConsumersApart(t *testing.T) {
	t.Parallel()
	count := `{query: "SELECT b.seq, (SELECT count(*) FROM public.watchers)::text AS recipient FROM batch b"}`
	e, _ := rehearsing(
		t,
		entry{name: "writes", recipients: "{handler: writes}"},
		entry{name: "breaks", recipients: "{handler: breaks}"},
		entry{name: "falls", recipients: "{handler: falls}"},
		entry{name: "wrong", recipients: `{query: "SELECT b.seq, b.typ AS recipient FROM batch b"}`, types: "[a, c]"},
		entry{name: "sneaks", recipients: `{query: "SELECT b.seq, public.note(b.type) AS recipient FROM batch b"}`},
		entry{name: "counts", recipients: count},
	)
	register(t, e, "writes", func(ctx context.Context, tx *engine.HandlerTx, ev engine.Event) ([]string, error) {
		if err := tx.InsertJob(ctx, ownArgs{Seq: ev.Seq}, core.Job{Queue: "own"}); err != nil {
			return nil, err
		}
		_, err := tx.Exec(ctx, `INSERT INTO public.watchers DEFAULT VALUES`)
		return []string{string(ev.Payload), ev.ID[34:]}, err
	})
	register(t, e, "breaks", func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
		_, err := tx.Exec(ctx, `SELECT 1 / 0`)
		return nil, err
	})
	register(t, e, "falls", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
		panic("no luck")
	})
	if _, err := e.Store().Pool().Exec(t.Context(), `CREATE FUNCTION public.note(what text) RETURNS text LANGUAGE sql AS $$INSERT INTO public.watchers (person) VALUES ($1) RETURNING person$$`); err != nil {
		t.Fatal(err)
	}
	scene := engine.Scene{Rows: []engine.Row{row("watchers", `{}`)}, Events: events("a", "b", "c")}
	got := rehearse(t, e, scene, "writes", "breaks", "falls", "wrong", "sneaks", "counts")

	if diff := cmp.Diff([]string{`1 01`, `1 {"n": 1}`, `2 02`, `2 {"n": 1}`, `3 03`, `3 {"n": 1}`}, targetsOf(got[0])); diff != "" {
		t.Errorf("targets of a handler (-want +got):\n%s", diff)
	}
	own := core.Job{Kind: "test.own", Queue: "own", MaxAttempts: 25, Priority: 1}
	want := []postgres.OwnJob{{Job: own, Target: core.Target{Seq: 1}}, {Job: own, Target: core.Target{Seq: 2}}, {Job: own, Target: core.Target{Seq: 3}}}
	if diff := cmp.Diff(want, got[0].Own); diff != "" {
		t.Errorf("own jobs of a handler (-want +got):\n%s", diff)
	}
	for i, part := range map[int]string{1: "division by zero", 2: "panic: no luck", 3: "column b.typ does not exist", 4: "tries to write or lock"} {
		if got[i].Err == nil || !strings.Contains(got[i].Err.Error(), part) || len(got[i].Targets) > 0 {
			t.Errorf("consumer %d: got %v and targets %v, want an error with %q and none", i, got[i].Err, got[i].Targets, part)
		}
	}
	if at := got[3].At; at != len("SELECT b.seq, ") {
		t.Errorf("place of the error in the query: got %d, want %d", at, len("SELECT b.seq, "))
	}
	if diff := cmp.Diff([]string{"1 1", "2 1", "3 1"}, targetsOf(got[5])); diff != "" {
		t.Errorf("what the last consumer sees (-want +got):\n%s", diff)
	}
}

// A handler cannot end the transaction of a rehearsal, as it cannot end that of a round.
func TestRehearseRefusesACommit(t *testing.T) {
	t.Parallel()
	for name, statements := range map[string][]string{"commit": {`COMMIT`}, "another": {`COMMIT`, `BEGIN`}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _ := rehearsing(t, entry{name: "ends", recipients: "{handler: ends}"})
			register(t, e, "ends", func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
				for _, sql := range statements {
					if _, err := tx.Exec(ctx, sql); err != nil {
						return nil, err
					}
				}
				return nil, nil
			})
			got, err := e.Rehearse(t.Context(), engine.Scene{Events: events("a")}, []string{"ends"})
			if err != nil || got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "a handler must not run COMMIT") {
				t.Errorf("got %+v, %v; want COMMIT refused", got, err)
			}
		})
	}
}

// The database says which row or which event it does not take.
func TestRehearseRefusesTheScene(t *testing.T) {
	t.Parallel()
	e, _ := rehearsing(t, entry{name: "push", recipients: watching})
	fine := row("watchers", `{"id": 1}`)
	zero := events("a", "b")
	zero[1].Payload = json.RawMessage(`{"a": "\u0000"}`)
	for name, tt := range map[string]struct {
		rows   []engine.Row
		events []engine.Event
		want   postgres.SceneError
	}{
		"column":     {[]engine.Row{fine, row("watchers", `{"persn": "alex"}`)}, nil, postgres.SceneError{Row: 1, Event: -1, What: `column "persn" of relation "watchers" does not exist`}},
		"table":      {[]engine.Row{fine, row("public.watcher", `{}`)}, nil, postgres.SceneError{Row: 1, Event: -1, What: `there is no table "public.watcher"; did you mean "public.watchers"?`}},
		"table name": {[]engine.Row{row(`public."`, `{}`)}, nil, postgres.SceneError{Row: 0, Event: -1, What: `invalid name syntax`}},
		"value":      {[]engine.Row{row("watchers", `{"id": "x"}`)}, nil, postgres.SceneError{Row: 0, Event: -1, What: `invalid input syntax for type bigint: "x"`}},
		"twice":      {[]engine.Row{fine, fine}, nil, postgres.SceneError{Row: 1, Event: -1, What: `duplicate key value violates unique constraint "watchers_pkey"; Key (id)=(1) already exists`}},
		"null":       {[]engine.Row{fine, row("watchers", `{"person": null}`)}, nil, postgres.SceneError{Row: 1, Event: -1, What: `null value in column "person" of relation "watchers" violates not-null constraint; Failing row contains (1, null, {}, null)`}},
		"no mapping": {[]engine.Row{row("watchers", `[1]`)}, nil, postgres.SceneError{Row: 0, Event: -1, What: "a row is a mapping of columns to values"}},
		"event":      {[]engine.Row{fine}, zero, postgres.SceneError{Row: -1, Event: 1, What: `unsupported Unicode escape sequence; \u0000 cannot be converted to text`}},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.events == nil {
				tt.events = events("a")
			}
			_, err := e.Rehearse(t.Context(), engine.Scene{Rows: tt.rows, Events: tt.events}, []string{"push"})
			refused, ok := errors.AsType[*postgres.SceneError](err)
			if !ok {
				t.Fatalf("got %v, want a SceneError", err)
			}
			if name == "null" || name == "table name" {
				// the row has its number from a sequence, which no rollback resets; a name that is none is an
				// error of older servers, and no table to newer ones
				refused.What = tt.want.What
			}
			if diff := cmp.Diff(tt.want, *refused); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := e.Rehearse(t.Context(), engine.Scene{}, []string{"nobody"}); err == nil || !strings.Contains(err.Error(), `consumer "nobody" is not declared`) {
		t.Errorf("an unknown consumer: got %v", err)
	}
}
