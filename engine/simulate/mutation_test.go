// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/bothy/definitions"
	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/machine"
)

// update writes what is generated anew.
var update = flag.Bool("update", false, "write the generated part of docs/simulation.md")

// mutationLimit is within how many schedules a promise that is broken on purpose must be found.
const mutationLimit = 10000

// mutation breaks one core promise of the engine on purpose.
type mutation struct {
	what    string // in the words of docs/simulation.md
	flaws   flaws
	rows    []string // of round.yaml: what stands there, what stands there instead, and so on
	promise string   // that finds it
	says    string   // what it says then, in part
}

var mutations = []mutation{
	{what: "lock and read in one statement", flaws: flaws{oneSnapshot: true}, promise: promiseFacts, says: "ended ahead"},
	// The lock alone keeps a plain UPDATE from harm, as long as nothing can end the transaction that holds it.
	{what: "the cursor moves by a plain UPDATE, and a handler may end the transaction", flaws: flaws{advanceUnchecked: true, handlerMayCommit: true}, promise: promiseOnce},
	{what: "the head bounds the read", flaws: flaws{headBounds: true}, promise: promiseFacts, says: "ended idle"},
	{what: "idle is what the lock saw, and not the read behind it", flaws: flaws{idleUnread: true}, promise: promiseFacts, says: "ended idle"},
	{what: "no wake after the listener has connected again", flaws: flaws{sleepsOnReconnect: true}, promise: promiseWake},
	{what: "the wake comes before LISTEN", flaws: flaws{wakesBeforeListen: true}, promise: promiseWake},
	{what: "jobs and cursor in two transactions", flaws: flaws{advancesApart: true}, promise: promiseOnce},
	{what: "a lost reply to COMMIT is answered by sending again", flaws: flaws{sendsAgain: true}, promise: promiseOnce},
	{what: "ROLLBACK as the answer to COMMIT is taken for success", flaws: flaws{ignoresTag: true}, promise: promiseFacts, says: "ended processed"},
	{what: "a batch is full when what `types` left fills it", flaws: flaws{countsAfterTypes: true}, promise: promiseDrain},
	{what: "a new consumer starts at 0", flaws: flaws{startsAtZero: true}, promise: promiseCreated},
	{what: "a round makes a missing cursor, at the head", flaws: flaws{recreatesCursor: true}, promise: promiseCreated},
	{what: "the floor is not read again", flaws: flaws{neverRereads: true}, promise: promiseFacts, says: "ended gap"},
	{what: "the identity is not compared in the round", flaws: flaws{ignoresIdentity: true}, promise: promiseEpoch},
	{what: "the jobs go in before the lock is known", flaws: flaws{insertsBeforeLock: true}, promise: promiseFacts},
	{what: "an event is set aside in a transaction of its own", flaws: flaws{quarantinesApart: true}, promise: promiseAside, says: "its cursor goes from 0 to 0"},
	{what: "the cursor passes a refused event that is not set aside", flaws: flaws{quarantinesNothing: true}, promise: promiseOnce, says: "lacks a job"},
	{what: "another event than the refused one is set aside", flaws: flaws{quarantinesNext: true}, promise: promiseAside, says: "and its rule failed on event"},
	{what: "an event is set aside the first time that it fails", flaws: flaws{quarantinesAtOnce: true}, promise: promiseAside, says: "after 0 failures"},
	{what: "an event is set aside while another round holds the cursor", flaws: flaws{quarantinesUnowned: true}, promise: promiseAside, says: "holds the row"},
	{
		what: "table: an event is set aside and the cursor stays", promise: promiseAside,
		rows: []string{
			"{run: quarantine_event, answers: {quarantined: advance_behind}}", "{run: quarantine_event, answers: {quarantined: end quarantined}}",
			"  advance_behind:  {run: advance_cursor,   answers: {advanced: end quarantined}}\n", "",
		},
	},
	{
		what: "table: `quarantined` is told as `processed`", promise: promiseFacts,
		rows: []string{"{run: advance_cursor,   answers: {advanced: end quarantined}}", "{run: advance_cursor,   answers: {advanced: end processed}}", "  quarantined: {", "# quarantined: {"},
	},
	{
		what: "table: `hole` leads on to `decide`", promise: promiseFacts,
		rows: []string{"hole: end gap", "hole: decide"},
	},
	{
		what: "table: commits before the jobs are in", promise: promiseOnce,
		rows: []string{
			"decide:  {run: decide_recipients, answers: {decided: insert, ", "decide:  {run: decide_recipients, answers: {decided: advance, ",
			"  insert:  {run: insert_jobs,       answers: {inserted: advance}}\n", "",
		},
	},
	{
		what: "table: commits the jobs and leaves the cursor", promise: promiseOnce,
		rows: []string{
			"answers: {inserted: advance}}", "answers: {inserted: end processed}}",
			"  advance: {run: advance_cursor,    answers: {advanced: end processed}}\n", "",
		},
	},
	{
		what: "table: `taken` leads on to `read`", promise: promiseFacts,
		rows: []string{"taken: end locked", "taken: read", "  locked:      {transaction: rollback, next: wait, edge: unchanged}    # another worker's lock is no recovery\n", ""},
	},
	{
		what: "table: `expired` is told as `processed`", promise: promiseFacts,
		rows: []string{"advance_rest: {run: advance_cursor,    answers: {advanced: end lost}}", "advance_rest: {run: advance_cursor,    answers: {advanced: end processed}}", "  lost:  ", "# lost:  "},
	},
	{
		what: "table: `unfinalized` leads on to `plan`", promise: promiseEpoch,
		rows: []string{"unfinalized: end unfinalized", "unfinalized: plan", "  unfinalized: {", "# unfinalized: {"},
	},
	{
		what: "table: `ahead` is told as `idle`", promise: promiseFacts,
		rows: []string{"ahead: end ahead", "ahead: end idle", "  ahead:       {", "# ahead:       {"},
	},
	{
		what: "table: `processed` waits after a full batch", promise: promiseDrain,
		rows: []string{"processed:   {transaction: commit,   next: again_when_full}", "processed:   {transaction: commit,   next: wait}"},
	},
	{
		what: "table: `processed` rolls back", promise: promiseFacts,
		rows: []string{"processed:   {transaction: commit, ", "processed:   {transaction: rollback, "},
	},
	{
		what: "table: `failed` stops the consumer for good", promise: promiseLiveness,
		rows: []string{"failed:      {transaction: rollback, next: wait,", "failed:      {transaction: rollback, next: stop,"},
	},
	{
		what: "table: another worker's lock counts as a recovery", promise: promiseEdges,
		rows: []string{"locked:      {transaction: rollback, next: wait, edge: unchanged}", "locked:      {transaction: rollback, next: wait}"},
	},
	{
		what: "table: another worker's lock counts as a failure", promise: promiseEdges,
		rows: []string{"locked:      {transaction: rollback, next: wait, edge: unchanged}", "locked:      {transaction: rollback, next: wait, failure: error}"},
	},
}

// unproven is round.yaml with other rows and without its promises: a table that the prover would refuse.
func unproven(t *testing.T, rows []string) *machine.Machine {
	t.Helper()
	file, text := definitions.Round()
	table, _, found := strings.Cut(string(text), "\npromises:\n")
	if !found {
		t.Fatalf("%s has no promises any more", file)
	}
	for i := 0; i < len(rows); i += 2 {
		if strings.Count(table, rows[i]) != 1 {
			t.Fatalf("%s has %q %d times, want once", file, rows[i], strings.Count(table, rows[i]))
		}
		table = strings.Replace(table, rows[i], rows[i+1], 1)
	}
	vocabulary := consumer.Vocabulary()
	vocabulary.Promises = nil
	made, problems := machine.Load(file, []byte(table), vocabulary)
	if err := problems.Err(); err != nil {
		t.Fatalf("the changed table: %v", err)
	}
	return made
}

// Each core promise that is broken on purpose is found, by the check that is meant to find it. One that is
// not found fails the test.
func TestMutationsAreFound(t *testing.T) {
	t.Parallel()
	for _, m := range mutations {
		t.Run(m.what, func(t *testing.T) {
			t.Parallel()
			table := proven(t)
			if m.rows != nil {
				table = unproven(t, m.rows)
			}
			flawed := func(w *world) { w.flaws = m.flaws }
			broken, _, _ := search(table, mutationLimit, flawed)
			switch {
			case broken == nil:
				t.Fatalf("%d schedules did not find: %s", mutationLimit, m.what)
			case !m.foundBy(*broken):
				broken = m.another(table, flawed)
			}
			if broken == nil {
				t.Fatalf("%d schedules found it, and none by the promise %q with %q", mutationLimit, m.promise, m.says)
			}
			t.Logf("found by %q with seed %d: %s", m.promise, broken.Seed, broken.Violation.What)
		})
	}
}

// foundBy reports whether a broken schedule is the one that is meant to find the mutation.
func (m mutation) foundBy(r Result) bool {
	return r.Violation != nil && r.Violation.Promise == m.promise && strings.Contains(r.Violation.What, m.says)
}

// another looks on for the schedule that is meant: other checks may be quicker to find the same flaw.
func (m mutation) another(table *machine.Machine, options ...Option) *Result {
	for seed := range uint64(mutationLimit) {
		if r := Run(table, seed+1, options...); m.foundBy(r) {
			return &r
		}
	}
	return nil
}

// A schedule that broke a promise is told so that a person can follow it: short, with its seed, the same each
// time.
func TestExplain(t *testing.T) {
	t.Parallel()
	table := proven(t)
	flawed := func(w *world) { w.flaws.sendsAgain = true }
	broken := mutation{promise: promiseOnce}.another(table, flawed)
	if broken == nil {
		t.Fatal("no schedule found the flaw")
	}
	text := Explain(table, *broken, flawed)
	t.Log(text)
	for _, want := range []string{
		fmt.Sprintf("-run TestSchedules -seed %d\n", broken.Seed),
		"BROKEN PROMISE exactly once",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the explanation does not say %q:\n%s", want, text)
		}
	}
	if short := shrink(table, *broken, flawed); len(short.taken)*3 > len(broken.taken) {
		t.Errorf("the shortest schedule has %d steps of %d, want a third at most", len(short.taken), len(broken.taken))
	}
	if again := Explain(table, *broken, flawed); again != text {
		t.Errorf("explained again it reads\n%s\nwant\n%s", again, text)
	}
}

// Nothing is broken on purpose where nobody asked.
func TestFlawsAreOff(t *testing.T) {
	t.Parallel()
	if w := newWorld(proven(t), Shape{}); w.flaws != (flaws{}) {
		t.Errorf("a new world has the flaws %+v", w.flaws)
	}
}

// What the README says of them is true.
func TestReadmeCountsMutations(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("in %d ways and demands that each is found", len(mutations)); !strings.Contains(string(text), want) {
		t.Errorf("README.md does not say %q", want)
	}
}

// The page of the simulator lists every mutation and the promise that finds it.
func TestPageListsMutations(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "docs", "simulation.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- mutations: generated -->\n", "<!-- end -->\n"
	before, rest, ok := bytes.Cut(page, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines %q and %q", file, begin, end)
	}
	var table strings.Builder
	table.WriteString("| Broken on purpose | Found by the promise |\n|---|---|\n")
	for _, m := range mutations {
		fmt.Fprintf(&table, "| %s | %s |\n", m.what, m.promise)
	}
	for _, promise := range Promises() {
		if !strings.Contains(string(page), "| "+promise+" | ") {
			t.Errorf("%s does not say what the promise %q is", file, promise)
		}
	}
	want := string(before) + begin + table.String() + end + string(after)
	if want == string(page) {
		return
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s does not list the mutations of this test: run `go test ./engine/simulate -run TestPageListsMutations -update`", file)
}
