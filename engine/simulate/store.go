// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/round"
)

// few is up to how many jobs travel with the commit; more take a round trip of their own.
const few = 2

var (
	errLost    = errors.New("the connection is lost")
	errKilled  = errors.New("the process was killed")
	errHandler = errors.New("the handler ended the transaction")
)

// hiddenError is what a handler did that hid the error of a statement: a fault of its event.
type hiddenError struct{}

func (hiddenError) Error() string { return "the handler broke the transaction" }

// EventFault is what the real store says of it.
func (hiddenError) EventFault() (string, bool) { return "the handler broke the transaction", true }

// store is the real store statement by statement, on the model of the database: the same round trips in the
// same order, the same checks of what came back.
type store struct{ l *lane }

// look is what really happened to one transaction of a round. The checks compare the end of the round with it.
type look struct {
	tx      *transaction
	locked  bool         // the lock was tried
	existed bool         // and the row was there
	holder  *transaction // and another had it
	read    *state       // what was committed when the log was read
	saw     int          // the version of the database then, or when the round began
	full    bool         // the batch was full or cut: there may be more
	cut     bool         // by the limit of jobs
	broken  string       // why the round may fail
	blamed  bool         // the rule failed on an event
	first   int64        // the events that were read
	events  int
}

// roundTx is the transaction of one round from the client's side.
type roundTx struct {
	store
	look     *look          // its own: statements may still run when the lane has gone on
	consumer round.Consumer // with the batch of this round
	session  *session
	held     bool
	done     bool // there was nothing to lock the row for
	found    bool
	snapshot round.Snapshot
	jobs     []job
	queued   []statement // held back to travel with the commit
	moves    bool        // the cursor
	from, to int64
}

// Ensure is not a lane's: the process does it before its lanes begin.
func (st store) Ensure(context.Context, []string) error { return nil }

// Round is one transaction.
func (st store) Round(ctx context.Context, c round.Consumer, run func(context.Context, consumer.Tx) bool) error {
	l := st.l
	l.look = &look{}
	if l.dead {
		return errKilled
	}
	l.look.saw = l.w.db.now.version
	tx := &roundTx{store: st, look: l.look, consumer: c, session: l.p.acquire(l)}
	l.session = tx.session
	defer func() { l.p.release(l) }()
	if !run(ctx, tx) {
		tx.rollback()
		return nil
	}
	if err := ctx.Err(); err != nil {
		tx.rollback()
		return err
	}
	if err := tx.commit(); err != nil {
		tx.rollback()
		return err
	}
	return nil
}

// Lock sends BEGIN, the settings, the lock and the first read in one round trip.
func (tx *roundTx) Lock(ctx context.Context) (lock round.Lock, cursor int64, err error) {
	tx.l.at("lock_cursor")
	flaws := tx.l.w.flaws
	var batch []statement
	if flaws.recreatesCursor {
		batch = append(batch, tx.l.w.recreate(tx.l.consumer))
	}
	batch = append(batch, tx.begin(), tx.settings())
	switch {
	case flaws.oneSnapshot:
		batch = append(batch, tx.lockAndRead()...)
	case flaws.insertsBeforeLock:
		tx.held = true
		batch = append(batch, tx.read(pointRead, true))
	default:
		batch = append(batch, tx.lockUnlessDone(), tx.read(pointRead, true))
	}
	err = tx.l.send(ctx, tx.session, batch...)
	if err == nil && tx.done && tx.found && tx.snapshot.Reading() != round.None && !flaws.idleUnread {
		tx.done = false
		err = tx.l.send(ctx, tx.session, tx.lock(), tx.read(pointRead, true))
	}
	switch {
	case err != nil:
		return "", 0, err
	case !tx.found:
		tx.look.broken = "missing"
		return round.Missing, 0, nil
	case tx.done:
		return round.Quiet, tx.snapshot.Cursor, nil
	case !tx.held:
		return round.Taken, tx.snapshot.Cursor, nil
	default:
		return round.Held, tx.snapshot.Cursor, nil
	}
}

// Read gives what was read after the lock; when that does not run from the cursor to the head, everything is
// read again.
func (tx *roundTx) Read(ctx context.Context) (round.Snapshot, error) {
	tx.l.at("read_events")
	flaws := tx.l.w.flaws
	if !flaws.neverRereads && !flaws.oneSnapshot && !tx.snapshot.Contiguous(tx.consumer.Batch) {
		if err := tx.l.send(ctx, tx.session, tx.read(pointReread, false)); err != nil {
			return round.Snapshot{}, err
		}
		if !tx.found {
			tx.look.broken = "missing"
			return round.Snapshot{}, errors.New("the cursor row is gone")
		}
	}
	if flaws.ignoresIdentity {
		tx.snapshot.Guarded = false
	}
	if tx.look.events = len(tx.snapshot.Events); tx.look.events > 0 {
		tx.look.first = tx.snapshot.Events[0].Seq
	}
	return tx.snapshot, nil
}

// Recipients applies a rule that needs the database.
func (tx *roundTx) Recipients(ctx context.Context, events []round.Event, limit int, through int64) (round.Decision, error) {
	tx.l.at("decide_recipients")
	if tx.consumer.Suspect.Seq == 0 {
		return tx.decide(ctx, events, limit, through)
	}
	if tx.l.consumer.Rule.Kind == round.RuleHandler { // a query takes its savepoint in its own round trip
		if err := tx.l.send(ctx, tx.session, tx.save()); err != nil {
			return round.Decision{}, err
		}
	}
	decision, err := tx.decide(ctx, events, limit, through)
	if err == nil {
		return decision, nil
	}
	if back := tx.l.send(ctx, tx.session, tx.back()); back != nil {
		return decision, back
	}
	return decision, err
}

// save takes a savepoint.
func (tx *roundTx) save() statement {
	return statement{point: pointSave, run: func(s *session) (string, error) {
		if s.tx == nil {
			return "", &serverError{codeNoTransaction}
		}
		s.saved = true
		return "", nil
	}}
}

// back undoes everything since the savepoint. What a round's transaction has done before is to lock and to read.
func (tx *roundTx) back() statement {
	return statement{point: pointBack, run: func(s *session) (string, error) {
		if s.tx == nil || !s.saved {
			return "", &serverError{codeNoTransaction}
		}
		s.aborted = false
		return "", nil
	}}
}

// decide applies the rule.
func (tx *roundTx) decide(ctx context.Context, events []round.Event, limit int, through int64) (round.Decision, error) {
	query := tx.l.consumer.Rule.Kind == round.RuleQuery
	if query {
		if err := tx.l.send(ctx, tx.session, tx.save(), tx.rule("", events...)); err != nil {
			return round.Decision{}, err
		}
	}
	decision := round.Decision{Through: through}
	for i, e := range events {
		if !query {
			if err := tx.l.send(ctx, tx.session, tx.rule(tx.l.misbehaviour(), e)); err != nil {
				return round.Decision{}, err
			}
			// what became of the transaction is looked at after each call
			switch {
			case tx.session.tx == nil:
				return round.Decision{}, errHandler
			case tx.session.aborted:
				tx.look.blamed = true
				tx.session.tx.refused = e.Seq
				return round.Decision{}, hiddenError{}
			}
		}
		for _, r := range tx.l.consumer.rule(e) {
			decision.Targets = append(decision.Targets, round.Target{Seq: e.Seq, Recipient: r})
		}
		if len(decision.Targets) >= limit && i+1 < len(events) {
			decision.Through, decision.Cut = e.Seq, true
			break
		}
	}
	decision.Targets = round.Unique(decision.Targets)
	return decision, nil
}

// Insert stamps the jobs with the epoch that Read saw.
func (tx *roundTx) Insert(ctx context.Context, targets []round.Target) error {
	tx.l.at("insert_jobs")
	if len(targets) == 0 {
		return nil
	}
	for _, t := range targets {
		tx.jobs = append(tx.jobs, job{tx.l.consumer.index, t.Seq, t.Recipient, tx.snapshot.Epoch})
	}
	if len(targets) > few {
		return tx.l.send(ctx, tx.session, tx.insert())
	}
	tx.queued = append(tx.queued, tx.insert())
	return nil
}

// Quarantine arms the row of an event that is set aside.
func (tx *roundTx) Quarantine(r round.Refusal) {
	tx.l.at("quarantine_event")
	c, seq, flaws := tx.l.consumer.index, r.Seq, tx.l.w.flaws
	if flaws.quarantinesNext {
		seq++
	}
	if flaws.quarantinesNothing {
		return
	}
	tx.queued = append(tx.queued, statement{point: pointAside, run: func(s *session) (string, error) {
		if flaws.quarantinesApart || s.tx == nil {
			s.db.commit(&transaction{who: s.name, inRound: -1, asides: []mark{{c, seq}}, refused: seq}, byRound)
		} else {
			s.tx.asides = append(s.tx.asides, mark{c, seq})
		}
		return strconv.FormatInt(seq, 10), nil
	}})
}

// Advance arms the move of the cursor.
func (tx *roundTx) Advance(from, to int64) {
	tx.l.at("advance_cursor")
	tx.moves, tx.from, tx.to = true, from, to
	n := len(tx.snapshot.Events)
	tx.look.cut = n > 0 && to < tx.snapshot.Events[n-1].Seq
	tx.look.full = tx.look.cut || n >= tx.consumer.Batch
}

// commit sends what was held back, the move and COMMIT in one round trip.
func (tx *roundTx) commit() error {
	tx.l.at("commit")
	flaws := tx.l.w.flaws
	batch := tx.queued
	if flaws.insertsBeforeLock {
		batch = append(batch, tx.lock())
	}
	if tx.moves {
		advance := tx.advance()
		if flaws.advancesApart {
			batch = append(batch, tx.commitStatement(), tx.begin(), tx.settings())
		}
		batch = append(batch, advance)
	}
	batch = append(batch, tx.commitStatement())
	if flaws.ignoresTag {
		for i := range batch {
			batch[i].apart = true
		}
	}
	err := tx.l.send(context.Background(), tx.session, batch...)
	switch {
	case errors.Is(err, errLost) && flaws.sendsAgain:
		return tx.again()
	case err == nil && tx.session.tag != "COMMIT" && !flaws.ignoresTag:
		return fmt.Errorf("the server answered %s to COMMIT", tx.session.tag)
	case flaws.ignoresTag && !errors.Is(err, errLost) && !errors.Is(err, errKilled):
		return nil
	}
	return err
}

// rollback ends the transaction whatever became of the round's context.
func (tx *roundTx) rollback() {
	if s := tx.session; s.cut || s.ended || s.tx == nil {
		return
	}
	tx.l.at("rollback")
	_ = tx.l.send(context.Background(), tx.session, statement{point: pointRollback, run: (*session).rollback})
}

func (tx *roundTx) begin() statement {
	return statement{point: pointBegin, run: func(s *session) (string, error) {
		s.begin()
		tx.look.tx = s.tx
		return "", nil
	}}
}

// settings marks the transaction as a round.
func (tx *roundTx) settings() statement {
	return statement{point: pointSettings, run: func(s *session) (string, error) {
		if s.tx != nil {
			s.tx.inRound = tx.l.consumer.index
		}
		return "", nil
	}}
}

// lockUnlessDone leaves the row alone when the cursor is at the head.
func (tx *roundTx) lockUnlessDone() statement {
	lock := tx.lock()
	return statement{point: pointLock, run: func(s *session) (string, error) {
		if row := s.db.now.cursors[tx.l.consumer.index]; row.exists && row.last == s.db.now.head {
			tx.done = true
			return "nothing to do", nil
		}
		return lock.run(s)
	}}
}

// lock is FOR UPDATE SKIP LOCKED.
func (tx *roundTx) lock() statement {
	c := tx.l.consumer.index
	return statement{point: pointLock, run: func(s *session) (string, error) {
		tx.look.locked = true
		tx.look.existed = s.db.now.cursors[c].exists
		tx.look.holder = s.db.rows[c]
		tx.held = tx.look.existed && (tx.look.holder == nil || tx.look.holder == s.tx)
		if tx.unowned() && tx.look.existed {
			tx.held = true
			return "held all the same", nil
		}
		switch {
		case tx.held:
			s.db.rows[c] = s.tx
			return "held", nil
		case tx.look.existed:
			return "taken: held by " + tx.look.holder.who, nil
		default:
			return "no such row", nil
		}
	}}
}

// read is one statement over cursor, head, epoch, identity and events. The bounded one reads the numbers of
// one batch, the other the next rows wherever they are, and the floor.
func (tx *roundTx) read(at point, bounded bool) statement {
	return statement{point: at, run: func(s *session) (string, error) {
		now := s.db.now
		tx.look.read, tx.look.saw = now, now.version
		if s.tx != nil {
			s.tx.reads = true
		}
		tx.found = tx.take(now, now.cursors[tx.l.consumer.index], bounded)
		return tx.words(), nil
	}}
}

// take fills the snapshot from a state and a cursor.
func (tx *roundTx) take(from *state, row cursor, bounded bool) (found bool) {
	bound := int64(math.MaxInt64)
	if bounded {
		bound = row.last + int64(tx.consumer.Batch)
	}
	if tx.l.w.flaws.headBounds {
		bound = min(bound, from.head)
	}
	tx.snapshot = round.Snapshot{
		Cursor: row.last, Head: from.head, Epoch: from.epoch, Stored: from.stored, Current: from.current, Guarded: true,
		Events: from.after(row.last, bound, tx.consumer.Batch),
	}
	if !bounded {
		tx.snapshot.Floor = from.floor()
	}
	return row.exists
}

// words is the snapshot for the trace.
func (tx *roundTx) words() string {
	if !tx.l.w.tracing {
		return ""
	}
	seqs := make([]int64, len(tx.snapshot.Events))
	for i, e := range tx.snapshot.Events {
		seqs[i] = e.Seq
	}
	return fmt.Sprintf("cursor %d, head %d, floor %d, rows %v", tx.snapshot.Cursor, tx.snapshot.Head, tx.snapshot.Floor, seqs)
}

// rule is the statement of a query rule, or one that a handler runs; a handler may misbehave, and either fails on
// an event that is poisoned.
func (tx *roundTx) rule(wrong string, events ...round.Event) statement {
	return statement{point: pointRule, run: func(s *session) (string, error) {
		for _, e := range events {
			if wrong == "" && tx.l.w.poisons(tx.l.consumer, e) {
				tx.look.broken, tx.look.blamed = "poison", true
				if s.tx != nil {
					s.tx.refused = e.Seq
				}
				return "", &serverError{codePoison}
			}
		}
		switch wrong {
		case "":
			return "", nil
		case handlerCommits, handlerBeginsAgain:
			if !tx.l.w.flaws.handlerMayCommit {
				return "the handler tries COMMIT, which is refused, and goes on", nil
			}
			_, err := s.commit(byRound)
			if wrong == handlerBeginsAgain {
				s.tx = &transaction{who: s.name, inRound: -1, reads: true}
				tx.look.tx = s.tx
			}
			return "the handler runs COMMIT", err
		default: // handlerSwallows
			if !s.saved {
				s.db.release(s.tx)
			}
			s.aborted = true
			return "a statement fails and the handler hides it", nil
		}
	}}
}

// insert adds the jobs to the transaction.
func (tx *roundTx) insert() statement {
	return statement{point: pointInsert, run: func(s *session) (string, error) {
		if s.tx == nil { // each statement is a transaction of its own
			own := &transaction{who: s.name, jobs: tx.jobs, inRound: -1}
			s.db.commit(own, byRound)
		} else {
			s.tx.jobs = append(s.tx.jobs, tx.jobs...)
		}
		return strconv.Itoa(len(tx.jobs)), nil
	}}
}

// advance moves the cursor, and raises unless exactly the expected row moves inside its round.
func (tx *roundTx) advance() statement {
	c := tx.l.consumer.index
	compares := !tx.l.w.flaws.advanceUnchecked
	return statement{
		point: pointAdvance,
		free: func() bool {
			holder, own := tx.l.w.db.rows[c], tx.session.tx
			return tx.unowned() || holder == nil || holder == own || compares && (own == nil || own.inRound != c) // raises before it waits
		},
		run: func(s *session) (string, error) {
			row := s.db.now.cursors[c]
			if compares && (s.tx == nil || s.tx.inRound != c || !row.exists || row.last != tx.from || tx.to <= tx.from) {
				return "", &serverError{codeCursorMoved}
			}
			if holder := s.db.rows[c]; holder != nil && holder != s.tx {
				tx.l.w.violate(promiseAside, "%s moves the cursor of %s while %s holds the row", s.name, tx.l.consumer.Name, holder.who)
			}
			s.move(c, tx.from, tx.to)
			return fmt.Sprintf("from %d to %d", tx.from, tx.to), nil
		},
	}
}

// move writes the cursor into the transaction.
func (s *session) move(c int, from, to int64) {
	move := func(s *state) {
		s.cursors[c].last = to
		if s.dropped > from {
			s.cursors[c].lost = append(slices.Clip(s.cursors[c].lost), span{from + 1, min(s.dropped, to)})
		}
	}
	if s.tx == nil {
		s.db.change(byRound, nil, move)
		return
	}
	s.db.rows[c] = s.tx
	s.tx.from, s.tx.to, s.tx.lost = from, to, max(0, min(s.db.now.dropped, to)-from)
	s.tx.writes = append(s.tx.writes, move)
}

func (tx *roundTx) commitStatement() statement {
	return statement{point: pointCommit, run: func(s *session) (string, error) { return s.commit(byRound) }}
}
