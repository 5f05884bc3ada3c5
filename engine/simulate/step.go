// SPDX-License-Identifier: Apache-2.0

package simulate

import "slices"

// do takes one step. The choice must be one that list gave.
func (w *world) do(c choice) {
	w.taken = append(w.taken, c)
	switch c.act {
	case actProduce:
		w.produce(w.producers[c.a], c.r)
	case actFinalize:
		w.finalizeStep()
	case actOrphan, actNotice:
		w.doOrphan(c)
	case actBoot, actPrepare, actListen, actNotify, actKeepAlive, actKill, actStop, actBudget, actLoseListener, actDeafen:
		w.doProcess(c, w.processes[c.a])
	case actStart, actExecute, actReply, actGiveUp, actSignal, actPoll, actFail, actCut, actTerminate, actMisbehave:
		p := w.processes[c.a]
		w.doLane(c, p.lanes[c.b])
		p.settleStop()
	default:
		w.doFate(c)
	}
	if w.follow != nil {
		w.follow(c)
	}
}

func (w *world) doProcess(c choice, p *process) {
	switch c.act {
	case actBoot:
		version := p.version
		if w.shape.Faults&(FaultCrash|FaultStop) != 0 && c.r%4 == 0 {
			version = 2 // a rolling upgrade
		}
		p = w.newProcess(p.slot, version)
		w.processes[c.a] = p
		p.boot()
		if slices.ContainsFunc(w.processes, func(other *process) bool { return other.prepared && other.version != version }) {
			w.met[metSecondStart]++
		}
		w.note(p.name(), "starts, version %d", version)
	case actPrepare:
		w.note(p.name(), "makes the cursors that are missing")
		p.prepare()
	case actListen:
		p.listen()
		w.note(p.name(), "listener: %s", map[listening]string{connected: "connects", listens: "LISTEN", attached: "wakes everybody"}[p.listening])
	case actNotify:
		p.notified = false
		p.wake()
		w.note(p.name(), "listener: a notification wakes everybody")
	case actKeepAlive:
		p.listening, p.deaf, p.notified = away, false, false
		w.note(p.name(), "listener: finds that its connection is dead")
	case actKill:
		w.note(p.name(), "is killed")
		p.kill()
	case actStop:
		w.note(p.name(), "is told to stop")
		p.stop()
	case actBudget:
		w.note(p.name(), "has no time left: its rounds are cancelled")
		p.cancel()
	case actLoseListener:
		p.listening, p.deaf, p.notified = away, false, false
		w.note(p.name(), "listener: loses its connection")
	default: // actDeafen
		p.deaf = true
		w.note(p.name(), "listener: its connection dies without a word")
	}
}

func (w *world) doLane(c choice, l *lane) {
	s := l.session
	switch c.act {
	case actStart:
		w.note(l.name, "begins")
		l.start()
	case actExecute:
		w.execute(s)
	case actReply:
		l.run()
	case actGiveUp:
		w.note(l.name, "gives up waiting: its context ended")
		l.gaveUp = true
		l.run()
	case actSignal:
		w.note(l.name, "wakes")
		l.signal, l.goOn = false, true
		l.run()
	case actPoll:
		w.note(l.name, "polls")
		l.goOn = true
		l.run()
	case actFail:
		s.code = [...]string{codeDeadlock, codeLockTimeout, codeTimeout, codeDiskFull}[c.r%4]
		l.look.broken = s.code
		w.note(l.name, "the next statement will fail with %s", s.code)
	case actCut:
		s.cut = true
		l.look.broken = "lost"
		if c.r%2 == 0 {
			s.queue = nil
		}
		w.note(l.name, "its connection breaks; the server has still %d statements", len(s.queue))
	case actTerminate:
		w.note(l.name, "its backend is terminated")
		l.look.broken = "terminated"
		s.terminate()
	default: // actMisbehave
		l.wrong = [...]string{handlerCommits, handlerBeginsAgain, handlerSwallows}[c.r%3]
		if w.shape.whole { // the real store lets no handler run COMMIT
			l.wrong = handlerSwallows
		}
	}
}

// execute runs one statement and notes it.
func (w *world) execute(s *session) {
	at, did, err := s.next()
	if w.tracing {
		w.note(s.name, "%s%s%s", at, map[bool]string{true: ": " + did}[did != ""], errorWords(err))
	}
}

func (w *world) doOrphan(c choice) {
	nth := c.a
	for _, s := range w.db.sessions {
		if !s.gone {
			continue
		}
		if nth > 0 {
			nth--
			continue
		}
		if c.act == actOrphan {
			w.execute(s)
			if s.tag == "COMMIT" && s.tx == nil && len(s.queue) == 0 {
				w.met[metOrphan]++
			}
			return
		}
		if s.tx != nil {
			w.met[metRolledBack]++
		}
		w.note(s.name, "the server notices that the client is gone")
		s.terminate()
		return
	}
}

func (w *world) doFate(c choice) {
	switch c.act {
	case actRetain:
		w.retain()
	case actLose:
		w.lose(c.r)
	case actRewindCounter:
		w.note("damage", "the counter goes back by one")
		w.db.change(byFate, nil, func(s *state) { s.head-- })
	case actMend:
		w.mend()
	case actBackup:
		w.remember()
	case actRestore:
		w.restore(c.r)
	case actPromote:
		w.promote(c.r)
	case actMix:
		w.mix(c.r)
	default: // actRetire
		w.retire(int(c.a))
	}
}
