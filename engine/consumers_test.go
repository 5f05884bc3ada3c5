// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/enginetest"
)

// declare is a file that declares the entries, for commands that work as the administrator.
func declare(t testing.TB, db *enginetest.DB, entries ...entry) *config.Config {
	t.Helper()
	return configureWith(t, db.OwnerURL, "consumer: {poll_interval: 1h}", entries...)
}

// restart is what a release does: migrate with the new file, then start.
func restart(t testing.TB, db *enginetest.DB, entries ...entry) *engine.Engine {
	t.Helper()
	e := open(t, configure(t, db, entries...))
	ensure(t, e)
	return e
}

func wantRefusal(t testing.TB, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want an error with %q", err, part)
		}
	}
}

// A consumer that is renamed goes on where it stood: every event has its jobs once, under either name.
func TestRenamedConsumerGoesOn(t *testing.T) {
	t.Parallel()
	old, push := entry{name: "old", batch: 3}, entry{name: "push", batch: 3}
	e, db := prepared(t, old)
	db.Append(t, 5)
	wantRound(t, e, "old", "processed")

	done, err := engine.RenameConsumer(t.Context(), declare(t, db, push), "old", "push", engine.ChangeOptions{By: "alex"})
	if err != nil || done.Deed != 2 || *done.LastSeq != 3 || done.Lag() != 2 {
		t.Fatalf("rename: %+v, %v; want deed 2, a cursor at 3 and 2 events to see", done, err)
	}

	// The old engine still runs. Its rounds fail and change nothing, it makes no second cursor, and started
	// again it says what is wrong.
	o := wantRound(t, e, "old", "failed")
	wantRefusal(t, o.Err, "the cursor row does not exist")
	wantRefusal(t, e.Prepare(t.Context()), `consumer "old" was renamed to "push" on `, "start the engine with the present consumers.yaml")
	wantRound(t, e, "old", "failed")

	renamed := restart(t, db, push)
	wantRound(t, renamed, "push", "processed")
	if got := jobsOf(t, db, "old"); len(got) != 6 {
		t.Errorf("jobs under the old name: %v, want those of the events 1 to 3", got)
	}
	wantExactlyOnce(t, db, "push", 4, 5, "alex", "sam")
	list, head, err := renamed.ListConsumers(t.Context())
	start, cursor := int64(0), int64(5)
	want := []engine.Standing{{Name: "push", Declared: true, Known: true, Cursor: &cursor, Start: &start, Former: []string{"old"}}}
	if diff := cmp.Diff(want, list); err != nil || head != 5 || diff != "" {
		t.Errorf("list: head %d, %v (-want +got)\n%s", head, err, diff)
	}

	again, err := engine.RenameConsumer(t.Context(), declare(t, db, push), "old", "push", engine.ChangeOptions{})
	if err != nil || again.Deed != 0 || !strings.Contains(again.Note, `nothing to do: consumer "old" was renamed to "push" on `) {
		t.Errorf("rename again: %+v, %v", again, err)
	}
}

// The engine that is renamed away while it runs is not harmed either: the runner goes on with its others.
func TestRenameUnderARunningEngine(t *testing.T) {
	t.Parallel()
	old, other, push := entry{name: "old"}, entry{name: "other"}, entry{name: "push"}
	e, db := prepared(t, old, other)
	log := &lines{}
	running := open(t, configure(t, db, old, other), engine.WithLogger(log.logger()))
	stop := runInBackground(t, running)
	db.Append(t, 1)
	waitUntil(t, "both consumers have seen the event", func() bool {
		return cursorOf(t, db, "old") == 1 && cursorOf(t, db, "other") == 1
	})
	if _, err := engine.RenameConsumer(t.Context(), declare(t, db, push, other), "old", "push", engine.ChangeOptions{}); err != nil {
		t.Fatal(err)
	}
	db.Append(t, 1)
	waitUntil(t, "the other consumer has seen the second event", func() bool { return cursorOf(t, db, "other") == 2 })
	waitUntil(t, "the round without a cursor has failed", func() bool { return strings.Contains(log.String(), "bothy.consumer.name=old") })
	stop()
	if got := cursorOf(t, db, "push"); got != 1 {
		t.Errorf("cursor of push: got %d, want 1: nobody runs it yet", got)
	}
	if _, has := standing(t, e)["old"]; has {
		t.Error("the old name has a cursor again")
	}
}

// standing is the cursors by name.
func standing(t testing.TB, e *engine.Engine) map[string]int64 {
	t.Helper()
	states, err := e.States(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int64{}
	for _, s := range states {
		at[s.Name] = s.LastSeq
	}
	return at
}

func TestRenameRefusals(t *testing.T) {
	t.Parallel()
	old, push := entry{name: "old"}, entry{name: "push"}
	db := database(t, old, push)
	e := open(t, configure(t, db, old))
	ensure(t, e)
	db.Append(t, 4)
	rename := func(from, to string, declared ...entry) error {
		_, err := engine.RenameConsumer(t.Context(), declare(t, db, declared...), from, to, engine.ChangeOptions{})
		return err
	}
	wantRefusal(t, rename("push", "push", push), `consumer "push" has this name already`)
	wantRefusal(t, rename("old", "pusch", push), `consumer "pusch" is not declared in consumers.yaml`, `did you mean "push"?`, "give the consumer its new name there first")
	wantRefusal(t, rename("old", "push", old, push), `consumer "old" is still declared in consumers.yaml`)
	wantRefusal(t, rename("odl", "push", push), `consumer "odl" has no cursor (did you mean "old"?)`, "engine consumers list")

	// The new name ran too early.
	ensure(t, open(t, configure(t, db, push)))
	wantRefusal(t, rename("old", "push", push), `consumer "push" has a cursor of its own, at 4, and that of "old" is at 0`, "docs/operations.md")
	if diff := cmp.Diff(map[string]int64{"old": 0, "push": 4}, standing(t, e)); diff != "" {
		t.Errorf("cursors after the refusals (-want +got):\n%s", diff)
	}

	// The way out that docs/operations.md shows.
	other := entry{name: "other"}
	if _, err := engine.RetireConsumer(t.Context(), declare(t, db, other), "push", "ran too early", false, engine.ChangeOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := rename("old", "push", push); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int64{"push": 0}, standing(t, e)); diff != "" {
		t.Errorf("cursors at the end (-want +got):\n%s", diff)
	}
	wantRefusal(t, rename("old", "other", other), `consumer "old" has no cursor: it was renamed to "push" on `)
}

func TestRetireConsumer(t *testing.T) {
	t.Parallel()
	gone, push := entry{name: "gone"}, entry{name: "push"}
	db := database(t, gone, push, entry{name: "never"})
	e := open(t, configure(t, db, gone, push))
	ensure(t, e)
	db.Append(t, 5)
	retire := func(name string, force bool, o engine.ChangeOptions) (engine.Change, error) {
		return engine.RetireConsumer(t.Context(), declare(t, db, push), name, "no longer needed", force, o)
	}
	_, err := retire("push", true, engine.ChangeOptions{})
	wantRefusal(t, err, `consumer "push" is declared in consumers.yaml`)
	_, err = retire("gonne", false, engine.ChangeOptions{})
	wantRefusal(t, err, `consumer "gonne" has no cursor (did you mean "gone"?)`)
	_, err = retire("gone", false, engine.ChangeOptions{})
	wantRefusal(t, err, `consumer "gone" has 5 events still to see: its cursor is at 0 and the head at 5`, "--force")
	if dry, err := retire("gone", true, engine.ChangeOptions{DryRun: true}); err != nil || dry.Deed != 0 || dry.Lag() != 5 {
		t.Errorf("dry run: %+v, %v; want 5 events given up and no deed", dry, err)
	}
	if diff := cmp.Diff(map[string]int64{"gone": 0, "push": 0}, standing(t, e)); diff != "" {
		t.Errorf("cursors before (-want +got):\n%s", diff)
	}

	done, err := retire("gone", true, engine.ChangeOptions{})
	if err != nil || done.Deed != 3 || done.Lag() != 5 {
		t.Fatalf("retire: %+v, %v; want deed 3 and 5 events given up", done, err)
	}
	wantRound(t, e, "gone", "failed")
	wantRefusal(t, e.Prepare(t.Context()), `consumer "gone" was retired on `, "begins at the head")
	if again, err := retire("gone", false, engine.ChangeOptions{}); err != nil || !strings.Contains(again.Note, `nothing to do: consumer "gone" was retired on `) || !strings.HasSuffix(again.Note, ": no longer needed") {
		t.Errorf("retire again: %+v, %v", again, err)
	}
	if never, err := retire("never", false, engine.ChangeOptions{}); err != nil || never.LastSeq != nil || never.Deed == 0 {
		t.Errorf("retire a name without a cursor: %+v, %v", never, err)
	}

	// One that is caught up needs no force.
	wantRound(t, e, "push", "processed")
	if _, err := engine.RetireConsumer(t.Context(), declare(t, db, gone), "push", "done", false, engine.ChangeOptions{}); err != nil {
		t.Error(err)
	}
}
