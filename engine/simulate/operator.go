// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"

	"example.com/bothy/engine/round"
)

// producer appends: it stages events, and they are numbered when it commits.
type producer struct {
	name   string
	staged []event
	tx     *transaction // holds the counter once the events have numbers
	first  int64
}

// produce is the next step of a producer.
func (w *world) produce(p *producer, r uint64) {
	s := w.db.now
	switch {
	case len(p.staged) == 0:
		n := int(1 + r%3)
		for i := range n {
			e := int(r>>8+uint64(i)*5) % len(catalogue) //nolint:gosec // small
			p.staged = append(p.staged, catalogue[e])
		}
		w.left -= n
		w.note(p.name, "stages %d events", n)
	case p.tx == nil && r%8 == 0:
		p.staged = nil
		w.note(p.name, "rolls back before it has numbers")
	case p.tx == nil:
		p.tx = &transaction{who: p.name, inRound: -1}
		w.db.counter, p.first = p.tx, s.head+1
		w.note(p.name, "COMMIT begins: takes the counter, numbers from %d", p.first)
		if s.head < int64(len(s.all)) {
			w.abort(p)
			w.note(p.name, "fails: the number %d exists", s.head+1)
		} else if w.shape.whole {
			w.complete(p)
		}
	case r%8 == 0:
		w.abort(p)
		w.note(p.name, "dies before its COMMIT is complete")
	default:
		w.complete(p)
	}
}

// complete ends a COMMIT: the events are in the log, and who listens is notified.
func (w *world) complete(p *producer) {
	head := w.db.now.head
	w.db.release(p.tx)
	staged := p.staged
	p.staged, p.tx = nil, nil
	w.note(p.name, "COMMIT: events %d to %d", p.first, p.first+int64(len(staged))-1)
	if p.first != head+1 {
		w.violate(promiseNumbers, "%s numbers from %d and the head is %d", p.name, p.first, head)
	}
	w.db.change(byProducer, nil, func(s *state) {
		s.all = append(s.all, staged...)
		s.head += int64(len(staged))
	})
	w.appended = w.db.now.version
	heard := false
	for _, process := range w.processes {
		if process.listening >= listens && !process.deaf {
			process.notified, heard = true, true
		}
	}
	if !heard {
		w.met[metSilentWake]++
	}
}

// abort rolls a producer back; its numbers are given to the next one.
func (w *world) abort(p *producer) {
	w.db.release(p.tx)
	p.staged, p.tx = nil, nil
}

// partition is how many numbers a partition of the log has.
const partition = 3

// retain drops the oldest partition, unless it holds the head or somebody reads the log.
func (w *world) retain() {
	s := w.db.now
	upTo := s.dropped + partition
	w.note("retention", "drops %d to %d", s.dropped+1, upTo)
	w.db.change(byFate, nil, func(s *state) {
		s.dropped = upTo
		s.missing = slices.DeleteFunc(slices.Clone(s.missing), func(seq int64) bool { return seq <= upTo })
	})
}

// retainable reports whether retention may drop now: whole partitions, not the one with the head, nothing that
// a transaction reads. A row that damage removed right at the new floor would be taken for retention by
// anybody who sees only the log; the model leaves that case out.
func (w *world) retainable() bool {
	s := w.db.now
	return s.dropped+partition < s.head && s.head == int64(len(s.all)) && s.holds(s.dropped+partition+1) && !w.db.reading()
}

// lose removes a row in the middle of the log.
func (w *world) lose(r uint64) {
	s := w.db.now
	seq := s.dropped + 2 + int64(r%uint64(int64(len(s.all))-s.dropped-1)) //nolint:gosec // small
	if !s.holds(seq) || s.floor() >= seq {
		return
	}
	w.note("damage", "row %d is lost", seq)
	w.db.change(byFate, nil, func(s *state) { s.missing = append(slices.Clip(s.missing), seq) })
}

// mend takes back what damage did.
func (w *world) mend() {
	w.note("operator", "mends the log")
	w.db.change(byFate, nil, func(s *state) { s.missing, s.head = nil, int64(len(s.all)) })
}

// remember takes a backup.
func (w *world) remember() {
	w.backups = append(w.backups, w.db.now)
	if len(w.backups) > 4 {
		w.backups = w.backups[1:]
	}
	w.note("operator", "takes a backup")
}

// restore goes back to a backup: another timeline, every connection ends.
func (w *world) restore(r uint64) {
	to := w.backups[r%uint64(len(w.backups))]
	w.note("operator", "restores the backup of head %d", to.head)
	w.back(to, func(*session) bool { return false }, w.otherTimeline())
}

// promote makes a standby the primary: it may lack the last commits, and connections that were idle may
// survive behind an address that moved.
func (w *world) promote(r uint64) {
	to := w.db.now
	if n := uint64(len(w.backups)); n > 0 && r%2 == 0 && !w.shape.whole {
		to = w.backups[n-1]
	}
	w.note("operator", "promotes a standby with head %d", to.head)
	w.back(to, func(s *session) bool { return s.tx == nil && len(s.queue) == 0 }, w.otherTimeline())
}

// mix restores log and counter and leaves cursors and jobs, as a partial restore does. The runbook stops the
// producers until finalize: once the head has passed the cursors, nobody can tell.
func (w *world) mix(r uint64) {
	to, now := w.backups[r%uint64(len(w.backups))], w.db.now
	w.note("operator", "restores the log alone, to head %d", to.head)
	w.back(now, func(*session) bool { return false }, func(s *state) {
		s.head, s.all, s.dropped, s.missing, s.mixed = to.head, slices.Clip(to.all), to.dropped, to.missing, true
	})
	w.backups = nil
}

func (w *world) back(to *state, keep func(*session) bool, writes ...func(*state)) {
	for _, p := range w.producers {
		w.abort(p)
	}
	w.finalizing = nil
	for _, p := range w.processes {
		p.listening, p.notified, p.deaf = away, false, false
	}
	// a backup of the abandoned future is none of this history
	w.backups = []*state{to}
	w.db.rewind(to, keep, writes...)
}

// otherTimeline gives the server an identity that it never had.
func (w *world) otherTimeline() func(*state) {
	w.timelines++
	current := round.Identity{System: 1, Timeline: w.timelines}
	return func(s *state) { s.current = current }
}

// finalize is restore finalize, row after row: it takes the counter, then each cursor, and commits.
type finalize struct {
	tx   *transaction
	next int // the cursor that it takes next
}

// finalizable reports whether finalize can take its next step.
func (w *world) finalizable() bool {
	f := w.finalizing
	switch {
	case f == nil:
		return (w.db.now.mixed || w.db.now.stored != w.db.now.current) && w.db.now.head == int64(len(w.db.now.all)) && w.db.counter == nil
	case f.next < len(w.consumers):
		if w.db.rows[f.next] != nil {
			w.met[metFinalized]++
		}
		return w.db.rows[f.next] == nil
	default:
		return true
	}
}

// finalizeStep is the next step of finalize.
func (w *world) finalizeStep() {
	f := w.finalizing
	switch {
	case f == nil:
		w.finalizing = &finalize{tx: &transaction{who: "finalize", inRound: -1}}
		w.db.counter = w.finalizing.tx
		w.note("finalize", "takes the counter")
	case f.next < len(w.consumers):
		w.db.rows[f.next] = f.tx
		w.note("finalize", "takes the cursor of %s", w.consumers[f.next].Name)
		f.next++
	default:
		w.finalizing, w.backups = nil, nil
		w.epochs++
		epoch := fmt.Sprintf("epoch-%d", w.epochs)
		w.db.release(f.tx)
		w.note("finalize", "COMMIT: %s, cursors to the head", epoch)
		w.db.change(byOperator, nil, func(s *state) {
			s.epoch, s.stored, s.mixed = epoch, s.current, false
			for i := range s.cursors {
				s.cursors[i].last, s.cursors[i].start, s.cursors[i].lost = s.head, s.head, nil
			}
		})
	}
}

// retire removes a cursor while an older engine may still run its consumer.
func (w *world) retire(c int) {
	w.note("operator", "retires %s", w.consumers[c].Name)
	w.db.change(byOperator, nil, func(s *state) { s.cursors[c].exists = false })
}
