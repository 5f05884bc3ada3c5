// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"

	"example.com/bothy/engine/round"
)

// maxConsumers is how many consumers a schedule has at most.
const maxConsumers = 3

// state is what is committed. It never changes: a commit makes another one, so that a snapshot, a backup and
// the past are all just pointers. What only the checks know is in it too, so that a restore brings it back
// together with what it speaks of.
type state struct {
	version int // rises with each commit, also over a restore

	head    int64   // the counter row
	all     []event // every event of this history by number, also those that the log no longer holds
	dropped int64   // retention removed every number up to here
	missing []int64 // rows that damage removed

	cursors [maxConsumers]cursor
	jobs    []job
	asides  []mark // event_quarantine

	epoch   string
	stored  round.Identity // what the instance row says
	current round.Identity // what the server says

	mixed bool // log and counter are of another time than cursors and jobs
}

// cursor is one cursor row. start and lost are known to the checks alone.
type cursor struct {
	exists bool
	last   int64
	start  int64  // jobs are promised for what comes after
	lost   []span // numbers that retention removed before a round came
}

// span is a run of numbers, both ends included.
type span struct{ from, to int64 }

func (c cursor) lostAt(seq int64) bool {
	return slices.ContainsFunc(c.lost, func(s span) bool { return s.from <= seq && seq <= s.to })
}

// job is one row of River's table.
type job struct {
	consumer  int
	seq       int64
	recipient string
	epoch     string
}

// mark is one row of event_quarantine.
type mark struct {
	consumer int
	seq      int64
}

// aside reports whether a consumer has set an event aside.
func (s *state) aside(consumer int, seq int64) bool {
	return slices.Contains(s.asides, mark{consumer, seq})
}

// holds reports whether the log has the row.
func (s *state) holds(seq int64) bool {
	return seq > s.dropped && seq <= int64(len(s.all)) && !slices.Contains(s.missing, seq)
}

// floor is the lowest number that the log holds, 0 when it is empty.
func (s *state) floor() int64 {
	for seq := s.dropped + 1; seq <= int64(len(s.all)); seq++ {
		if s.holds(seq) {
			return seq
		}
	}
	return 0
}

// after are the rows from seq > from on, up to bound, at most limit.
func (s *state) after(from, bound int64, limit int) []round.Event {
	var events []round.Event
	for seq := max(from, s.dropped) + 1; seq <= min(bound, int64(len(s.all))) && len(events) < limit; seq++ {
		if s.holds(seq) {
			events = append(events, s.all[seq-1].row(seq))
		}
	}
	return events
}

// retired reports whether a consumer that had a cursor has none.
func (s *state) retired() bool {
	return slices.ContainsFunc(s.cursors[:], func(c cursor) bool { return !c.exists && c.last > 0 })
}

// hole reports whether the log lacks a number above from that retention does not explain, or has one that
// the counter never gave out.
func (s *state) hole(from int64) bool {
	if int64(len(s.all)) > s.head && int64(len(s.all)) > from {
		return true
	}
	for seq := max(from, s.dropped) + 1; seq <= s.head; seq++ {
		if !s.holds(seq) {
			return true
		}
	}
	return false
}

// transaction is one of the database.
type transaction struct {
	who     string
	inRound int // the consumer that bothy.in_round names, or -1
	reads   bool
	writes  []func(*state)
	jobs    []job
	asides  []mark // to be set aside
	refused int64  // the event on which the rule failed last

	from, to  int64 // the move of the cursor
	lost      int64 // how many events that move passed because retention had removed them
	committed bool
}

// database is PostgreSQL as far as rounds use it: one committed state, sessions that run one statement after
// the other, row locks. A statement is atomic and sees what was committed when it began.
type database struct {
	now      *state
	sessions []*session
	counter  *transaction               // holds the row of event_seq
	rows     [maxConsumers]*transaction // who holds each cursor row

	changed func(before, after *state, why reason, tx *transaction) // sees every commit
}

// reason is what a change of the committed state comes from.
type reason string

const (
	byRound    reason = "round"
	byProducer reason = "producer"
	byEnsure   reason = "start"
	byOperator reason = "operator" // retire, finalize
	byFate     reason = "fate"     // retention, damage, restore
)

// change commits a new state.
func (db *database) change(why reason, tx *transaction, writes ...func(*state)) {
	before := db.now
	after := *before
	after.version++
	for _, write := range writes {
		write(&after)
	}
	db.now = &after
	db.changed(before, &after, why, tx)
}

// commit ends a transaction with what it wrote.
func (db *database) commit(tx *transaction, why reason) {
	db.release(tx)
	tx.committed = true
	if len(tx.writes) == 0 && len(tx.jobs) == 0 && len(tx.asides) == 0 {
		return
	}
	writes := tx.writes
	if len(tx.asides) > 0 {
		writes = append(slices.Clone(writes), func(s *state) { s.asides = append(slices.Clip(s.asides), tx.asides...) })
	}
	if len(tx.jobs) > 0 {
		writes = append(slices.Clone(writes), func(s *state) { s.jobs = append(s.jobs, tx.jobs...) })
	}
	db.change(why, tx, writes...)
}

// release lets go of every row that a transaction holds: it has ended.
func (db *database) release(tx *transaction) {
	if tx == nil {
		return
	}
	if db.counter == tx {
		db.counter = nil
	}
	for i := range db.rows {
		if db.rows[i] == tx {
			db.rows[i] = nil
		}
	}
}

// reading reports whether a transaction that is open has read the log: nothing can be dropped then.
func (db *database) reading() bool {
	return db.counter != nil || slices.ContainsFunc(db.sessions, func(s *session) bool { return s.tx != nil && s.tx.reads })
}

// rewind puts the database back to a state that it had, and ends what is open. keep decides which sessions
// survive.
func (db *database) rewind(to *state, keep func(*session) bool, writes ...func(*state)) {
	for _, s := range slices.Clone(db.sessions) {
		if !keep(s) {
			s.terminate()
		}
	}
	db.counter = nil
	db.rows = [maxConsumers]*transaction{}
	version := db.now.version
	back := *to
	back.version = version
	// what comes is written elsewhere: the other future may still be read
	back.all, back.jobs, back.asides = slices.Clip(back.all), slices.Clip(back.jobs), slices.Clip(back.asides)
	db.now = &back
	db.change(byFate, nil, writes...)
}
