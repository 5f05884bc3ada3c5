// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"
	"slices"
)

// action is a kind of step.
type action int8

const (
	actBoot      action = iota + 1 // a process starts
	actPrepare                     // it makes its cursors
	actStart                       // a lane begins
	actExecute                     // the server runs the next statement of a lane
	actReply                       // the lane gets the reply
	actGiveUp                      // the lane's context ends its wait for the reply
	actSignal                      // a lane wakes by its signal
	actPoll                        // a lane wakes by its poll
	actListen                      // a listener goes on
	actNotify                      // a listener gets a notification
	actKeepAlive                   // a listener finds that its connection is dead
	actOrphan                      // the server runs a statement whose client is gone
	actNotice                      // the server notices that a client is gone
	actProduce                     // a producer goes on
	actFinalize                    // finalize goes on

	// from here on: faults
	actKill
	actStop
	actBudget
	actFail
	actCut
	actTerminate
	actLoseListener
	actDeafen
	actRetain
	actLose
	actRewindCounter
	actMend
	actBackup
	actRestore
	actPromote
	actMix
	actRetire
	actMisbehave
)

// choice is one step: what, who, and a number for what is left to chance in it. A list of choices is a
// schedule.
type choice struct {
	act  action
	a, b int8
	r    uint64
}

func (c choice) same(other choice) bool {
	return c.act == other.act && c.a == other.a && c.b == other.b
}

// strategy picks the next step.
type strategy struct {
	held     map[*session]int // by whom a session is stopped, until which step
	priority map[choice]uint32
}

// The ways to pick.
const (
	pickAny      uint8 = iota // whoever
	pickPriority              // the most important one; who was picked may become unimportant
	pickStopping              // whoever, but sessions stop for a while at one kind of statement
)

// list fills the options: who can do something now.
func (w *world) list() {
	w.options, w.faults = w.options[:0], w.faults[:0]
	for i, p := range w.processes {
		w.listProcess(p, int8(i)) //nolint:gosec // at most four
	}
	gone := int8(0)
	for _, s := range w.db.sessions {
		if !s.gone {
			continue
		}
		if s.ready() {
			w.option(actOrphan, gone, 0)
		}
		if len(s.queue) == 0 || !s.ready() {
			w.option(actNotice, gone, 0)
		}
		gone++
	}
	for i, p := range w.producers {
		now := w.db.now
		if (len(p.staged) == 0 && w.mayAppend()) || (len(p.staged) > 0 && p.tx == nil && w.db.counter == nil && !now.mixed) || p.tx != nil {
			w.option(actProduce, int8(i), 0) //nolint:gosec // at most three
		}
	}
	if w.finalizable() {
		w.option(actFinalize, 0, 0)
	}
	if !w.settling {
		w.listFaults()
	}
}

// mayAppend spreads the appends over the whole schedule.
func (w *world) mayAppend() bool {
	if w.scripted || w.settling {
		return w.left > 0
	}
	return (w.shape.Events-w.left)*w.shape.Steps <= w.shape.Events*len(w.taken)
}

func (w *world) option(act action, a, b int8) {
	w.options = append(w.options, choice{act: act, a: a, b: b})
}

func (w *world) fault(kind Faults, can bool, act action, a, b int8) {
	if can && w.shape.Faults&kind != 0 {
		w.faults = append(w.faults, choice{act: act, a: a, b: b})
	}
}

func (w *world) listProcess(p *process, i int8) {
	switch {
	case !p.up:
		w.option(actBoot, i, 0)
		return
	case !p.prepared:
		w.option(actPrepare, i, 0)
		return
	}
	for j, l := range p.lanes {
		w.listLane(l, i, int8(j)) //nolint:gosec // at most three
	}
	if p.listening != attached {
		w.option(actListen, i, 0)
	}
	if p.notified {
		w.option(actNotify, i, 0)
	}
	if p.deaf {
		w.option(actKeepAlive, i, 0)
	}
}

func (w *world) listLane(l *lane, i, j int8) {
	switch l.waits {
	case forStart:
		w.option(actStart, i, j)
	case forReply:
		s := l.session
		if s.ready() && !s.gone {
			w.option(actExecute, i, j)
		}
		if len(s.queue) == 0 || s.cut || s.ended {
			w.option(actReply, i, j)
		}
		if l.sent && l.p.ctx.Err() != nil {
			w.option(actGiveUp, i, j)
		}
	case forPause:
		if l.signal {
			w.option(actSignal, i, j)
		}
		if w.polls {
			w.option(actPoll, i, j)
		}
	case forNothing:
	}
}

// listFaults adds what may go wrong now.
func (w *world) listFaults() {
	for slot, p := range w.processes {
		i := int8(slot) //nolint:gosec // at most four
		w.fault(FaultCrash, p.up, actKill, i, 0)
		w.fault(FaultStop, p.prepared && !p.stopping, actStop, i, 0)
		w.fault(FaultStop, p.stopping && p.ctx.Err() == nil, actBudget, i, 0)
		w.fault(FaultListener, p.listening != away, actLoseListener, i, 0)
		w.fault(FaultListener, p.listening == attached && !p.deaf, actDeafen, i, 0)
		for lane, l := range p.lanes {
			j := int8(lane) //nolint:gosec // at most three
			s := l.session
			busy := p.prepared && l.waits == forReply && s != nil && !s.cut && !s.ended
			w.fault(FaultError, busy && len(s.queue) > 0 && s.code == "" && s.queue[0].point != pointRollback, actFail, i, j)
			w.fault(FaultCut, busy, actCut, i, j)
			w.fault(FaultTerminate, busy, actTerminate, i, j)
			w.fault(FaultHandler, l.consumer.Rule.Handler != "" && l.wrong == "", actMisbehave, i, j)
		}
	}
	s := w.db.now
	sound := s.head == int64(len(s.all))
	if w.retainable() { // rarely, since somebody reads the log most of the time: then it is likely
		for range 6 {
			w.fault(FaultRetention, true, actRetain, 0, 0)
		}
	}
	// two damages at once can hide each other from everybody who sees only the log
	w.fault(FaultHole, sound && !w.db.reading() && int64(len(s.all))-s.dropped >= 2, actLose, 0, 0)
	w.fault(FaultCounter, sound && len(s.missing) == 0 && !s.retired() && s.head > s.dropped+1 && w.db.counter == nil && !s.mixed, actRewindCounter, 0, 0)
	w.fault(FaultHole|FaultCounter, w.db.counter == nil && (!sound || len(s.missing) > 0), actMend, 0, 0)
	w.fault(FaultRestore|FaultPromote|FaultMix, sound && !s.mixed && w.db.counter == nil, actBackup, 0, 0)
	w.fault(FaultRestore, len(w.backups) > 0, actRestore, 0, 0)
	w.fault(FaultPromote, sound && !s.mixed, actPromote, 0, 0)
	w.fault(FaultMix, len(w.backups) > 0 && !s.mixed && sound, actMix, 0, 0)
	for c := range w.consumers {
		w.fault(FaultRetire, sound && !s.mixed && s.cursors[c].exists && w.db.rows[c] == nil, actRetire, int8(c), 0) //nolint:gosec // at most three
	}
}

// faultEvery is how rare a fault is: one step in so many.
const faultEvery = 14

// pick chooses the next step.
func (w *world) pick() choice {
	var chosen choice
	switch {
	case len(w.faults) > 0 && (len(w.options) == 0 || w.random.IntN(faultEvery) == 0):
		chosen = w.faults[w.random.IntN(len(w.faults))]
	case w.shape.strategy == pickPriority:
		chosen = w.strategy.important(w.options, w.random)
	case w.shape.strategy == pickStopping:
		chosen = w.unheld()
	default:
		chosen = w.options[w.random.IntN(len(w.options))]
	}
	chosen.r = w.random.Uint64()
	return chosen
}

// important picks the option with the highest priority. Priorities are drawn once; now and then the one that
// was picked gets another, so that nobody waits for ever.
func (s *strategy) important(options []choice, r *rand.Rand) choice {
	if s.priority == nil {
		s.priority = map[choice]uint32{}
	}
	best := options[0]
	for _, o := range options {
		if _, ok := s.priority[o]; !ok {
			s.priority[o] = r.Uint32()
		}
		if s.priority[o] > s.priority[best] {
			best = o
		}
	}
	if r.IntN(6) == 0 {
		s.priority[best] = r.Uint32() / 2
	}
	return best
}

// unheld picks any option but the statements that are stopped at, unless there is nothing else.
func (w *world) unheld() choice {
	if w.strategy.held == nil {
		w.strategy.held = map[*session]int{}
	}
	for range 4 {
		o := w.options[w.random.IntN(len(w.options))]
		if o.act != actExecute {
			return o
		}
		s := w.processes[o.a].lanes[o.b].session
		if s.queue[0].point != w.shape.stop {
			return o
		}
		until, ok := w.strategy.held[s]
		if !ok {
			until = len(w.taken)
			if w.random.IntN(2) == 0 {
				until += 5 + w.random.IntN(40)
			}
			w.strategy.held[s] = until
		}
		if until <= len(w.taken) {
			delete(w.strategy.held, s)
			return o
		}
	}
	return w.options[w.random.IntN(len(w.options))]
}

// run takes steps until a promise is broken or the schedule is over. With a script it takes those steps, and
// leaves out the ones that cannot be taken.
func (w *world) run(script []choice) Result {
	w.polls, w.scripted = true, script != nil
	if script == nil {
		for len(w.taken) < w.shape.Steps && w.violation == nil {
			w.list()
			if len(w.options)+len(w.faults) == 0 {
				break
			}
			w.do(w.pick())
		}
	}
	for _, c := range script {
		w.list()
		if can := func(o choice) bool { return o.same(c) }; slices.ContainsFunc(w.options, can) || slices.ContainsFunc(w.faults, can) {
			w.do(c)
		}
		if w.violation != nil {
			break
		}
	}
	scheduled := len(w.taken)
	if !w.abrupt {
		w.settle()
	}
	for _, p := range w.processes {
		if p.up {
			p.kill()
		}
	}
	if w.violation != nil {
		w.note("check", "BROKEN PROMISE %s", w.violation)
	}
	return Result{Seed: w.seed, Shape: w.shape, Steps: len(w.taken), Settled: w.settling, Violation: w.violation, Trace: w.trace.String(), Met: w.met, taken: w.taken[:scheduled]}
}

// restLimit is far more steps than it takes to come to rest.
const restLimit = 20000

// settle ends the faults and sees whether everything recovers: first without any poll, then with them.
func (w *world) settle() {
	if w.violation != nil {
		return
	}
	w.note("schedule", "no fault happens from here on")
	order := rand.New(rand.NewPCG(w.seed, 1))
	w.settling, w.polls, w.left = true, false, 0
	if w.follow != nil {
		w.follow(choice{}) // rules fail no more, before the next step
	}
	for _, p := range w.processes {
		for _, l := range p.lanes {
			l.wrong = ""
			if l.session != nil {
				l.session.code = ""
			}
		}
	}
	w.rest(order)
	if w.violation == nil {
		w.checkWakes()
	}
	if s := w.db.now; w.violation == nil && (s.head != int64(len(s.all)) || len(s.missing) > 0) {
		w.do(choice{act: actMend})
	}
	w.rest(order) // what waited for that, finalize among it
	// One process after the other polls, so that none is kept from looking by the lock of another. Twice: the
	// first time may be what ends a process that was told to stop, and its next start makes a cursor.
	for range 2 {
		for slot := range w.processes {
			for _, l := range w.processes[slot].lanes {
				l.signal = true
			}
			w.rest(order)
		}
	}
	if w.violation == nil {
		w.checkRecovered()
	}
}

// rest takes steps until nobody has anything to do.
func (w *world) rest(order *rand.Rand) {
	for range restLimit {
		if w.violation != nil {
			return
		}
		w.list()
		if len(w.options) == 0 {
			return
		}
		c := w.options[order.IntN(len(w.options))]
		c.r = order.Uint64()
		w.do(c)
	}
	w.violate(promiseTerminate, "after %d steps without a fault or a new event there is still something to do", restLimit)
}
