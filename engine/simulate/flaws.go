// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"

	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/round"
)

// flaws are core promises that a test breaks on purpose, to see the simulator find it. None is set otherwise.
type flaws struct {
	oneSnapshot       bool // the lock and the read are one statement
	advanceUnchecked  bool // the cursor moves by a plain UPDATE
	headBounds        bool // the read stops at the head
	sleepsOnReconnect bool // no wake after LISTEN
	wakesBeforeListen bool // the wake comes before LISTEN
	advancesApart     bool // jobs and cursor in two transactions
	sendsAgain        bool // a lost reply to COMMIT is answered by sending the same again
	ignoresTag        bool // ROLLBACK is taken for success
	countsAfterTypes  bool // a batch is full when the selected events fill it
	startsAtZero      bool // a new consumer begins at 0
	recreatesCursor   bool // a round makes a missing cursor, at the head
	neverRereads      bool // the floor is not read
	ignoresIdentity   bool // the identity is not compared
	idleUnread        bool // idle is what the lock saw, without the read behind it
	insertsBeforeLock bool // the lock is asked for after the jobs
	handlerMayCommit  bool // what a handler sends is not looked at

	quarantinesApart   bool // the event is set aside in a transaction of its own
	quarantinesNothing bool // the cursor passes the event, and nobody can find it again
	quarantinesNext    bool // another event is set aside
	quarantinesAtOnce  bool // any round may set its event aside, also one that fails for the first time
	quarantinesUnowned bool // the event is set aside although another round has the cursor
}

// lockAndRead is oneSnapshot: SKIP LOCKED answers with the newest row, and everything else is older.
func (tx *roundTx) lockAndRead() []statement {
	var old *state
	lock := tx.lock()
	return []statement{
		{point: pointRead, run: func(s *session) (string, error) {
			old = s.db.now
			return "takes its snapshot", nil
		}},
		{point: pointLock, run: func(s *session) (string, error) {
			did, err := lock.run(s)
			tx.look.read, tx.look.saw = s.db.now, s.db.now.version
			tx.found = tx.take(old, s.db.now.cursors[tx.l.consumer.index], false)
			return did + ", " + tx.words(), err
		}},
	}
}

// recreate is recreatesCursor.
func (w *world) recreate(c *declared) statement {
	return statement{point: pointEnsure, run: func(s *session) (string, error) {
		if s.db.now.cursors[c.index].exists {
			return "", nil
		}
		s.db.change(byRound, nil, func(s *state) { s.cursors[c.index].exists, s.cursors[c.index].last = true, s.head })
		return "the round makes the missing cursor", nil
	}}
}

// unowned reports whether this round goes on without the lock: quarantinesUnowned.
func (tx *roundTx) unowned() bool {
	return tx.l.w.flaws.quarantinesUnowned && tx.consumer.Suspect.Seq != 0
}

// eager is quarantinesAtOnce, around the real rounds.
type eager struct {
	consumer.Rounds
	l *lane
}

// Round suspects whatever comes next.
func (e eager) Round(ctx context.Context, c round.Consumer) consumer.Outcome {
	if c.QuarantineAfter > 0 {
		c.Batch, c.Suspect = 1, round.Suspect{Seq: e.l.w.db.now.cursors[e.l.consumer.index].last + 1, Attempts: 1}
	}
	return e.Rounds.Round(ctx, c)
}

// again is sendsAgain: on another connection, and content when the cursor is there already.
func (tx *roundTx) again() error {
	tx.l.p.release(tx.l)
	tx.session = tx.l.p.acquire(tx.l)
	tx.l.session = tx.session
	advance := tx.advance()
	move := advance.run
	advance.run = func(s *session) (string, error) {
		if s.db.now.cursors[tx.l.consumer.index].last == tx.to {
			return "is there already", nil
		}
		return move(s)
	}
	return tx.l.send(context.Background(), tx.session, tx.begin(), tx.settings(), tx.insert(), advance, tx.commitStatement())
}

// afterTypes is countsAfterTypes, around the real rounds.
type afterTypes struct {
	consumer.Rounds
	l *lane
}

// Round counts what the types left.
func (a afterTypes) Round(ctx context.Context, c round.Consumer) consumer.Outcome {
	o := a.Rounds.Round(ctx, c)
	if look := a.l.look; o.Full && look.read != nil && !look.cut {
		selected := 0
		for seq := o.First; seq < o.First+int64(o.Events); seq++ {
			if c.Types.Match(look.read.all[seq-1].kind) {
				selected++
			}
		}
		o.Full = selected >= c.Batch
	}
	return o
}
