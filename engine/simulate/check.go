// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"strings"

	"example.com/bothy/engine/consumer"
)

// Violation is a promise that a schedule broke.
type Violation struct {
	Promise string // its name, from docs/simulation.md
	What    string
}

func (v *Violation) String() string { return v.Promise + ": " + v.What }

// The promises that are checked.
const (
	promiseOnce      = "exactly once"           // each event has its jobs, each once, when the cursor passes it and not before
	promiseForward   = "cursors go forward"     // except by finalize
	promiseCreated   = "new at the head"        // only a start makes a cursor, at the head
	promiseEpoch     = "one history"            // no job of another epoch, no round while the identity differs
	promiseNumbers   = "numbers without gaps"   // the log is numbered in the order of commits
	promiseAside     = "set aside for a reason" // an event that failed alone, again and again, together with the move of the cursor
	promiseFacts     = "ends match facts"       // an end says what was so
	promiseDrain     = "drains"                 // after a full batch the next round comes at once
	promiseWake      = "wakes"                  // an append leads to a round of every consumer, without a poll
	promiseLiveness  = "recovers"               // once nothing breaks any more, every cursor reaches the head
	promiseEdges     = "log edges"              // one line when failing begins, one when it ends
	promisePanic     = "no panic"               // a lane ends by the table alone
	promiseTerminate = "comes to rest"          // without new events, nothing goes on for ever
)

// violate notes the first broken promise; the schedule ends there.
func (w *world) violate(promise, format string, args ...any) {
	if w.violation == nil {
		w.violation = &Violation{promise, fmt.Sprintf(format, args...)}
	}
}

// changed looks at every commit.
func (w *world) changed(before, after *state, why reason, tx *transaction) {
	if w.tracing {
		w.note("database", "%s", after.words(w))
	}
	w.checkCursors(before, after, why)
	if why == byRound {
		w.checkHistory(after, tx)
	}
	if why == byProducer && after.head != int64(len(after.all)) {
		w.violate(promiseNumbers, "the head is %d and the log was numbered up to %d", after.head, len(after.all))
	}
	w.checkJobs(after)
}

// checkCursors compares the cursors before and after a commit.
func (w *world) checkCursors(before, after *state, why reason) {
	for i, c := range w.consumers {
		from, to := before.cursors[i], after.cursors[i]
		switch {
		case !from.exists && to.exists && why == byRound:
			w.violate(promiseCreated, "a round made the cursor of %s, at %d: only a start may, what lies before is skipped in silence", c.Name, to.last)
		case !from.exists && to.exists && to.last != after.head && why == byEnsure:
			w.violate(promiseCreated, "the new cursor of %s stands at %d and the head is %d", c.Name, to.last, after.head)
		case from.exists && to.exists && to.last < from.last && (why == byRound || why == byProducer || why == byEnsure):
			w.violate(promiseForward, "the cursor of %s went back from %d to %d", c.Name, from.last, to.last)
		case why == byRound && to.last > max(after.head, int64(len(after.all))) && to.last != from.last:
			w.violate(promiseForward, "the cursor of %s went to %d, above the head %d", c.Name, to.last, after.head)
		}
	}
}

// checkHistory looks at what a round committed.
func (w *world) checkHistory(after *state, tx *transaction) {
	if after.stored != after.current {
		w.violate(promiseEpoch, "a round committed while the database is %s and the cursors follow %s", after.current, after.stored)
	}
	if tx == nil {
		return
	}
	for _, m := range tx.asides {
		switch name := w.consumers[m.consumer].Name; {
		case tx.refused != m.seq:
			w.violate(promiseAside, "%s sets event %d aside, and its rule failed on event %d", name, m.seq, tx.refused)
		case tx.from != m.seq-1 || tx.to != m.seq:
			w.violate(promiseAside, "%s sets event %d aside, and its cursor goes from %d to %d", name, m.seq, tx.from, tx.to)
		}
	}
	for _, j := range tx.jobs {
		if j.epoch != after.epoch {
			w.violate(promiseEpoch, "a job of %s for event %d has the epoch %s, and it is %s now", w.consumers[j.consumer].Name, j.seq, j.epoch, after.epoch)
		}
	}
}

// checkJobs compares the jobs of this history with the log.
func (w *world) checkJobs(s *state) {
	n := len(s.all) + 1
	for i := range w.consumers {
		if cap(w.seen[i]) < n {
			w.seen[i] = make([]uint8, n, 2*n)
		}
		w.seen[i] = w.seen[i][:n]
		clear(w.seen[i])
	}
	for _, j := range s.jobs {
		if j.epoch != s.epoch || j.seq > int64(len(s.all)) {
			continue
		}
		bit := recipientBit(j.recipient)
		if w.seen[j.consumer][j.seq]&bit != 0 {
			w.violate(promiseOnce, "event %d has the job of %s for %q twice", j.seq, w.consumers[j.consumer].Name, j.recipient)
			return
		}
		w.seen[j.consumer][j.seq] |= bit
	}
	for i, c := range w.consumers {
		w.checkConsumer(s, c, s.cursors[i], w.seen[i])
	}
}

// checkConsumer looks at every event of one consumer.
func (w *world) checkConsumer(s *state, c *declared, at cursor, seen []uint8) {
	for seq := at.start + 1; seq < int64(len(seen)); seq++ {
		var want uint8
		if seq <= at.last && !at.lostAt(seq) && !s.aside(c.index, seq) {
			want = w.wants[c.index][s.all[seq-1].index]
		}
		switch got := seen[seq]; {
		case got == want:
		case seq > at.last:
			w.violate(promiseOnce, "event %d has a job of %s, whose cursor is at %d", seq, c.Name, at.last)
		case got&^want != 0:
			w.violate(promiseOnce, "event %d has a job of %s for somebody it is not for", seq, c.Name)
		default:
			w.violate(promiseOnce, "event %d lacks a job of %s, whose cursor is at %d", seq, c.Name, at.last)
		}
	}
}

// ended compares the end that a round reported with what happened.
func (w *world) ended(l *lane, o consumer.Outcome) {
	if l.dead {
		return
	}
	look := l.look
	if w.tracing {
		w.note(l.name, "round ends %s%s", o.End.Name, errorWords(o.Err))
	}
	w.met[o.End.Name]++
	committed := look.tx != nil && look.tx.committed && look.tx.to > 0
	if committed && o.Err != nil {
		w.met[metReplyLost]++
	}
	if committed && o.Err == nil && l.p.ctx.Err() != nil {
		w.met[metOverdue]++
	}
	l.drain = committed && look.full && o.Err == nil
	if l.last == "processed" || l.last == "lost" { // another failure is tried again at once, and is no edge
		l.count()
	}
	l.last = o.End.Name
	w.blame(l, o, committed)
	if wrong := w.mismatch(l, o, committed); wrong != "" {
		w.violate(promiseFacts, "a round of %s ended %s, and %s", l.consumer.Name, o.End.Name, wrong)
	}
}

// blame follows the rounds that fail on an event: a failure of another kind ends the row.
func (w *world) blame(l *lane, o consumer.Outcome, committed bool) {
	look := l.look
	if committed {
		l.moved = look.tx.to
	}
	switch o.End.Name {
	case "failed":
		if !look.blamed || o.Blamed == (consumer.Numbers{}) {
			l.blames, l.alone, l.through = 0, 0, 0
			return
		}
		l.blames++
		l.alone = 0
		if look.events == 1 {
			l.alone = look.first
		}
		l.ought = true // each of them is told, also when the next round follows at once
		if l.consumer.QuarantineAfter > 0 {
			l.through = look.first + int64(look.events) - 1
		}
	case "quarantined":
		if l.blames < l.consumer.QuarantineAfter || l.alone != o.Quarantined.Seq {
			w.violate(promiseAside, "%s sets event %d aside after %d failures of this engine, the last one over event %d alone (0: none), and it declares %d",
				l.consumer.Name, o.Quarantined.Seq, l.blames, l.alone, l.consumer.QuarantineAfter)
		}
		l.blames, l.alone, l.through = 0, 0, 0
	case "lost":
		if o.Events == 0 {
			w.met[metAfterLoss]++
		}
	case "processed", "locked", "stopped":
	default:
		l.blames, l.alone, l.through = 0, 0, 0
	}
}

// count takes the last end into account: another's lock is no recovery, a shutdown no incident.
func (l *lane) count() {
	switch l.last {
	case "failed", "gap", "ahead":
		l.ought = true
	case "processed", "lost":
		l.ought = l.ought && l.moved < l.through // the event that failed has not been tried again yet
	case "idle":
		l.ought = false
	default:
	}
	l.last = ""
}

// mismatch says what contradicts an end, or "".
func (w *world) mismatch(l *lane, o consumer.Outcome, committed bool) string {
	look, read, at := l.look, l.look.read, cursor{}
	if read != nil {
		at = read.cursors[l.consumer.index]
	}
	end := o.End.Name
	switch end {
	case "processed", "lost":
		return commitMismatch(look.tx, o, committed)
	case "quarantined":
		return asideMismatch(look.tx, o, committed)
	}
	switch {
	case committed && end != "failed" && end != "stopped":
		return "its transaction had been committed"
	case end == "locked" && look.existed && look.holder == nil:
		return "nobody else held the row"
	case end == "idle" && (at.last != read.head || int64(len(read.all)) > at.last):
		return fmt.Sprintf("the cursor was at %d, the head at %d and the log went to %d", at.last, read.head, len(read.all))
	case end == "gap" && !read.hole(at.last):
		return fmt.Sprintf("the log had no hole after %d", at.last)
	case end == "ahead" && at.last <= read.head:
		return fmt.Sprintf("the cursor was at %d and the head at %d", at.last, read.head)
	case end == "unfinalized" && read.stored == read.current:
		return "the identity was the stored one"
	case end == "stopped" && l.p.ctx.Err() == nil:
		return "nobody stopped it"
	case end == "failed" && look.broken == "":
		return fmt.Sprintf("nothing was broken: %v", o.Err)
	default:
		return ""
	}
}

// asideMismatch says what contradicts the end quarantined.
func asideMismatch(tx *transaction, o consumer.Outcome, committed bool) string {
	switch {
	case !committed:
		return "its transaction was not committed"
	case len(tx.jobs) > 0 || tx.lost > 0:
		return fmt.Sprintf("it inserted %d jobs and passed %d lost events", len(tx.jobs), tx.lost)
	case len(tx.asides) != 1 || o.Quarantined == nil || tx.asides[0].seq != o.Quarantined.Seq || o.First != tx.to || o.Events != 1:
		return fmt.Sprintf("it told of %d events from %d on, and set %v aside", o.Events, o.First, tx.asides)
	default:
		return ""
	}
}

// commitMismatch says what contradicts an end that commits.
func commitMismatch(tx *transaction, o consumer.Outcome, committed bool) string {
	if !committed {
		return "its transaction was not committed"
	}
	wantEnd := "processed"
	if tx.lost > 0 {
		wantEnd = "lost"
	}
	switch {
	case len(tx.asides) > 0:
		return fmt.Sprintf("it set %v aside", tx.asides)
	case o.End.Name != wantEnd || o.Lost != tx.lost:
		return fmt.Sprintf("retention had removed %d events, of which it told %d", tx.lost, o.Lost)
	case o.First != tx.from+tx.lost+1 || int64(o.Events) != tx.to-tx.from-tx.lost || o.Jobs != len(tx.jobs):
		return fmt.Sprintf("it told of %d events from %d on with %d jobs, and passed %d to %d with %d jobs", o.Events, o.First, o.Jobs, tx.from+tx.lost+1, tx.to, len(tx.jobs))
	default:
		return ""
	}
}

// pauses looks at a lane that is about to wait.
func (w *world) pauses(l *lane) {
	if l.dead {
		return
	}
	l.count()
	if l.failing != l.ought {
		w.violate(promiseEdges, "%s logs that it is failing: %t, and by the ends of its rounds: %t", l.consumer.Name, l.failing, l.ought)
	}
	if l.drain {
		w.violate(promiseDrain, "%s waits although its last round left a part of the batch or filled it", l.consumer.Name)
	}
}

// checkWakes looks at a database at rest: every append has led to a round of every lane since.
func (w *world) checkWakes() {
	for _, p := range w.processes {
		for _, l := range p.lanes {
			if l.waits == forPause && l.look.saw < w.appended {
				w.violate(promiseWake, "%s of %s sleeps although events were appended after its last look at the log, and its listener is connected", l.consumer.Name, p.name())
			}
		}
	}
}

// checkRecovered looks at a database at rest after everything was mended and every lane has polled.
func (w *world) checkRecovered() {
	s := w.db.now
	for i, c := range w.consumers {
		if at := s.cursors[i]; at.exists && at.last != s.head {
			w.violate(promiseLiveness, "the cursor of %s rests at %d and the head is %d", c.Name, at.last, s.head)
		}
		if w.db.rows[i] != nil {
			w.violate(promiseLiveness, "the cursor of %s is still held by %s", c.Name, w.db.rows[i].who)
		}
	}
	for _, p := range w.processes {
		for _, l := range p.lanes {
			if l.failing && s.cursors[l.consumer.index].exists {
				w.violate(promiseLiveness, "%s of %s still counts as failing", l.consumer.Name, p.name())
			}
		}
	}
}

// words is the state for the trace.
func (s *state) words(w *world) string {
	words := []string{fmt.Sprintf("head %d", s.head)}
	if s.head != int64(len(s.all)) {
		words = append(words, fmt.Sprintf("log to %d", len(s.all)))
	}
	if s.dropped > 0 {
		words = append(words, fmt.Sprintf("retention removed 1 to %d", s.dropped))
	}
	if len(s.missing) > 0 {
		words = append(words, fmt.Sprintf("rows %v missing", s.missing))
	}
	if s.stored != s.current {
		words = append(words, "not finalized")
	}
	for i, c := range w.consumers {
		jobs := 0
		for _, j := range s.jobs {
			if j.consumer == i && j.epoch == s.epoch {
				jobs++
			}
		}
		if s.cursors[i].exists {
			words = append(words, fmt.Sprintf("%s at %d with %d jobs", c.Name, s.cursors[i].last, jobs))
			for _, m := range s.asides {
				if m.consumer == i {
					words = append(words, fmt.Sprintf("event %d set aside", m.seq))
				}
			}
		} else {
			words = append(words, c.Name+" has no cursor")
		}
	}
	return strings.Join(words, ", ")
}

func errorWords(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// Promises are the names of all promises that are checked, in the order of their importance.
func Promises() []string {
	return []string{
		promiseOnce, promiseForward, promiseCreated, promiseEpoch, promiseNumbers, promiseAside, promiseFacts, promiseDrain, promiseWake,
		promiseLiveness, promiseEdges, promisePanic, promiseTerminate,
	}
}
