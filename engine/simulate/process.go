// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"iter"
	"log/slog"
	"slices"

	"example.com/bothy/engine/consumer"
)

// process is one engine process: lanes, a pool of connections and a listener.
type process struct {
	w       *world
	slot    int
	version int // of the engine: another batch size, perhaps another consumer

	up       bool
	prepared bool // its cursors exist
	stopping bool
	ctx      context.Context //nolint:containedctx // that of the process, as a real one has it in main
	cancel   context.CancelFunc

	lanes []*lane
	idle  []*session

	listening listening
	deaf      bool // the connection is dead and nobody knows
	notified  bool // a notification has arrived
}

// listening is how far the listener is.
type listening int

const (
	away      listening = iota // not connected
	connected                  // but deaf to what is sent
	listens                    // LISTEN has been run
	attached                   // and everybody was woken once
)

// waiting is what a lane waits for.
type waiting int

const (
	forStart waiting = iota
	forReply
	forPause
	forNothing // its loop has ended
)

// lane is the loop of one consumer in one process, as a coroutine: the real loop, the real rounds and the
// real table run until they wait for the server or between two rounds, and then the schedule decides.
type lane struct {
	w        *world
	p        *process
	consumer *declared
	name     string

	resume func() (waiting, bool)
	end    func()
	yield  func(waiting) bool
	waits  waiting
	dead   bool // killed: what it still does reaches nobody
	gaveUp bool // its context ended while it waited for a reply
	goOn   bool // what the pause answers

	signal  bool // the channel with a capacity of one
	session *session
	sent    bool   // the round trip can be given up: its context may end
	look    *look  // of the last round
	wrong   string // how the next call of the handler misbehaves
	failing bool   // by what was logged
	ought   bool   // by the ends of its rounds
	last    string // the end that was not counted yet
	drain   bool   // the last round left something of its batch

	blames  int   // rounds in a row that failed on an event
	alone   int64 // the event that failed last, without another one in its round
	through int64 // the last event of the round that failed so; 0 once it is passed
	moved   int64 // where the last round that committed left the cursor
}

// newProcess starts a process in a slot.
func (w *world) newProcess(slot, version int) *process {
	p := &process{w: w, slot: slot, version: version}
	for _, c := range w.consumersOf(version) {
		l := &lane{w: w, p: p, consumer: c}
		if w.tracing {
			l.name = p.name() + "/" + c.Name
		}
		p.lanes = append(p.lanes, l)
	}
	return p
}

func (p *process) name() string { return "engine " + string(rune('A'+p.slot)) }

// boot starts the process.
func (p *process) boot() {
	p.up = true
	p.ctx, p.cancel = context.WithCancel(context.Background())
}

// prepare is what must hold before the first round: each consumer has a cursor, a new one at the head.
func (p *process) prepare() {
	db := p.w.db
	var writes []func(*state)
	for _, l := range p.lanes {
		if c := l.consumer.index; !db.now.cursors[c].exists {
			writes = append(writes, func(s *state) {
				s.cursors[c] = cursor{exists: true, last: s.head, start: s.head}
				if p.w.flaws.startsAtZero {
					s.cursors[c].last = 0
				}
			})
		}
	}
	if len(writes) > 0 {
		db.change(byEnsure, nil, writes...)
	}
	p.prepared = true
}

// forever keeps the loop from telling of a long lock: here is no clock to say how long it lasts.
const forever = 1 << 62

// start begins the loop of a lane.
func (l *lane) start() {
	var rounds consumer.Rounds = consumer.NewService(l.w.storeOf(l), l.w.table)
	if l.w.flaws.countsAfterTypes {
		rounds = afterTypes{rounds, l}
	}
	if l.w.flaws.quarantinesAtOnce {
		rounds = eager{rounds, l}
	}
	loop := consumer.Loop{
		Rounds: rounds, Consumer: consumer.Consumer{Consumer: l.consumer.Consumer, LockedAfter: forever}, Logger: slog.New(edges{l}),
		Observe: func(_ string, o consumer.Outcome) { l.w.ended(l, o) },
		Begin:   func() bool { return !l.p.stopping && !l.dead },
		Pause: func(context.Context) bool {
			l.w.pauses(l)
			return l.wait(forPause) && l.goOn
		},
	}
	l.resume, l.end = iter.Pull(func(yield func(waiting) bool) {
		l.yield = yield
		defer func() {
			if v := recover(); v != nil && !l.dead {
				l.w.violate(promisePanic, "the loop of %s: %v", l.consumer.Name, v)
			}
		}()
		loop.Run(l.p.ctx)
	})
	l.run()
}

// run lets the lane do something until it waits again.
func (l *lane) run() {
	waits, more := l.resume()
	if !more {
		waits = forNothing
	}
	l.waits = waits
}

// wait hands over to the schedule. It gives false when the process was killed meanwhile.
func (l *lane) wait(what waiting) bool {
	if l.dead || !l.yield(what) {
		l.dead = true
	}
	return !l.dead
}

// send is one round trip of the lane's session.
func (l *lane) send(ctx context.Context, s *session, batch ...statement) error {
	switch {
	case l.dead:
		return errKilled
	case s.cut, s.ended:
		l.look.broken = "lost"
		return errLost
	case ctx.Err() != nil:
		return ctx.Err()
	}
	s.send(batch)
	if l.w.shape.whole {
		for s.ready() {
			l.w.execute(s)
		}
		return s.err
	}
	l.sent, l.gaveUp = ctx.Done() != nil, false
	switch {
	case !l.wait(forReply):
		return errKilled
	case l.gaveUp:
		s.gone = true
		return ctx.Err()
	case s.cut || s.ended:
		l.look.broken = "lost"
		return errLost
	}
	return s.err
}

// at notes the step of the table, for the trace.
func (l *lane) at(step string) { l.w.note(l.name, "-> %s", step) }

// The ways in which a handler misbehaves.
const (
	handlerCommits     = "commits"
	handlerBeginsAgain = "commits and begins again"
	handlerSwallows    = "hides an error"
)

// misbehaviour is how this call of the handler goes wrong, or "".
func (l *lane) misbehaviour() string {
	wrong := l.wrong
	if wrong != "" {
		l.wrong, l.look.broken = "", "handler"
	}
	return wrong
}

// acquire takes a connection of the pool.
func (p *process) acquire(l *lane) *session {
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		s.name = l.name
		return s
	}
	return p.w.db.connect(l.name)
}

// release gives the connection of a lane back; one that is not idle is closed.
func (p *process) release(l *lane) {
	s := l.session
	l.session = nil
	switch {
	case s == nil || l.dead || s.ended:
	case s.cut || s.gone || s.tx != nil || len(s.queue) > 0:
		s.gone = true
	default:
		p.idle = append(p.idle, s)
	}
}

// kill ends the process at once, wherever its lanes are. The server learns of it later, and may first run
// what was sent.
func (p *process) kill() {
	for _, l := range p.lanes {
		l.dead = true
		if l.session != nil {
			l.session.gone = true
			if p.w.shape.whole { // nothing is on its way, and the server learns of it at once
				l.session.terminate()
			}
		}
		l.session = nil
		if l.end != nil {
			l.end()
		}
		l.waits = forNothing
	}
	p.down()
}

// down is what is left to do once no lane runs.
func (p *process) down() {
	for _, s := range p.idle {
		s.gone = true
	}
	p.idle = nil
	p.cancel()
	p.up, p.prepared, p.stopping = false, false, false
	p.listening, p.deaf, p.notified = away, false, false
}

// stop begins no further round.
func (p *process) stop() {
	p.stopping = true
	for _, l := range p.lanes {
		switch l.waits {
		case forPause:
			l.goOn = false
			l.run()
		case forStart:
			l.waits = forNothing
		case forReply, forNothing:
		}
	}
	p.settleStop()
}

// settleStop ends the process once all of its lanes have.
func (p *process) settleStop() {
	if p.stopping && !slices.ContainsFunc(p.lanes, func(l *lane) bool { return l.waits != forNothing }) {
		p.down()
	}
}

// wake signals every lane.
func (p *process) wake() {
	for _, l := range p.lanes {
		l.signal = true
	}
}

// listen is the next step of the listener.
func (p *process) listen() {
	flaws := p.w.flaws
	switch p.listening {
	case away:
		p.listening = connected
		if flaws.wakesBeforeListen {
			p.wake()
		}
	case connected:
		p.listening = listens
	case listens:
		if !flaws.wakesBeforeListen && !flaws.sleepsOnReconnect {
			p.wake()
		}
		p.listening = attached
	case attached:
	}
}

// edges checks that a lane logs when failing begins and when it ends, and not in between.
type edges struct{ l *lane }

// Enabled leaves out what is only for debugging.
func (edges) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle looks at the message.
func (e edges) Handle(_ context.Context, r slog.Record) error {
	if e.l.dead {
		return nil
	}
	switch r.Message {
	case "event consumer round failed":
		if e.l.failing {
			e.l.w.violate("log edges", "%s logs a second failure without a recovery between", e.l.consumer.Name)
		}
		e.l.failing = true
	case "event consumer recovered":
		if !e.l.failing {
			e.l.w.violate("log edges", "%s logs a recovery and was not failing", e.l.consumer.Name)
		}
		e.l.failing = false
	}
	return nil
}

// WithAttrs is not used by the loop.
func (e edges) WithAttrs([]slog.Attr) slog.Handler { return e }

// WithGroup is not used by the loop.
func (e edges) WithGroup(string) slog.Handler { return e }
