// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/round"
)

// Quarantined is an event that a consumer has set aside.
type Quarantined struct {
	Consumer  string
	Seq       int64
	ErrorType string // a SQLSTATE, handler, rule or panic
	Message   string // in the engine's words: nothing of the event is in it
	At        time.Time
	Attempts  int    // how many rounds in a row it failed
	Type      string // of the event; empty when the log does not hold it any more
}

// Quarantined lists what a consumer has set aside, or all consumers when the name is empty, by name and number.
func (s *Store) Quarantined(ctx context.Context, consumer string) ([]Quarantined, error) {
	rows, err := s.pool.Query(ctx, `SELECT q.consumer, q.seq, q.error_type, q.message, q.at, q.attempts, coalesce(e.type, '')
FROM `+s.schema+`.event_quarantine q LEFT JOIN `+s.schema+`.event_log e ON e.seq = q.seq
WHERE $1 IN ('', q.consumer) ORDER BY q.consumer COLLATE "C", q.seq`, consumer)
	if err != nil {
		return nil, failed("list the quarantine", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Quarantined])
	return list, failed("list the quarantine", err)
}

// Settled is what became of an event that was set aside.
type Settled struct {
	Jobs int   // inserted; 0 also when it was dropped
	Deed int64 // its number in the audit
}

// settlement is what the audit keeps beside the number and the class of the error.
type settlement struct {
	Jobs   *int   `json:"jobs,omitempty"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
}

// NotQuarantinedError says that there is nothing to settle. Nothing was changed.
type NotQuarantinedError struct {
	Consumer string
	Seq      int64
}

func (e *NotQuarantinedError) Error() string {
	return fmt.Sprintf("event %d of consumer %q is not in quarantine: it was retried or dropped already, or never set aside", e.Seq, e.Consumer)
}

// RetryQuarantined decides an event again that the consumer has set aside, inserts its jobs and takes it out of
// the quarantine, all in one transaction: of two at once the second finds nothing. On an error the event stays.
func (s *Store) RetryQuarantined(ctx context.Context, c round.Consumer, seq int64, by string) (Settled, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return Settled{}, failed("get a connection", err)
	}
	tx := &Tx{store: s, conn: conn, consumer: c}
	defer func() { tx.conn.Release() }()
	settled, err := tx.retry(ctx, seq, by)
	if err == nil {
		err = tx.commit(ctx)
	}
	if err != nil {
		tx.rollback(ctx)
		return Settled{}, fmt.Errorf("retry event %d of consumer %q: %w", seq, c.Name, err)
	}
	return settled, nil
}

// retry does everything but the commit.
func (tx *Tx) retry(ctx context.Context, seq int64, by string) (Settled, error) {
	if err := tx.beginRetry(ctx, seq); err != nil {
		return Settled{}, err
	}
	if err := tx.readOne(ctx, seq); err != nil {
		return Settled{}, err
	}
	c := tx.consumer
	events := round.Select(tx.snapshot.Events, c.Types)
	var decision round.Decision
	var err error
	switch c.Rule.Kind {
	case round.RuleQuery, round.RuleHandler:
		decision, err = tx.recipients(ctx, events, math.MaxInt, seq)
	case round.RuleNone, round.RuleField, round.RuleList:
		decision = round.Decide(c.Rule, events, math.MaxInt, seq)
	}
	if err == nil {
		err = tx.Insert(ctx, decision.Targets)
	}
	if err != nil {
		return Settled{}, err
	}
	jobs := len(decision.Targets)
	deed, err := settleQuarantined(ctx, tx.conn, tx.store.schema, c.Name, seq, QuarantineRetried, settlement{Jobs: &jobs, By: by})
	return Settled{Jobs: jobs, Deed: deed}, err
}

// beginRetry begins the transaction as that of a round, and takes the row of the event: who comes second waits
// here.
func (tx *Tx) beginRetry(ctx context.Context, seq int64) error {
	s := tx.store
	tx.open = true
	var there, free bool
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`)
	batch.Queue(s.beginSettings(), tx.consumer.Name, s.limits[0], s.limits[1], s.limits[2])
	batch.Queue(`SET LOCAL application_name = 'bothy-quarantine'`)
	batch.Queue(`SELECT ` + s.presence()).QueryRow(func(row pgx.Row) error { return row.Scan(&free) })
	batch.Queue(`SELECT `+s.schema+`.lock_quarantined($1, $2)`, tx.consumer.Name, seq).QueryRow(func(row pgx.Row) error { return row.Scan(&there) })
	if err := tx.conn.SendBatch(ctx, batch).Close(); err != nil {
		return failed("take the event", err)
	}
	if !free {
		return failed("take the event", errFinalizing)
	}
	if !there {
		return &NotQuarantinedError{tx.consumer.Name, seq}
	}
	return nil
}

// readOne reads the event as a round reads it, and refuses what a round would refuse.
func (tx *Tx) readOne(ctx context.Context, seq int64) error {
	read := tx.store.readStatement(columnsOf(tx.consumer))
	rows, err := tx.conn.Query(ctx, read.one, tx.consumer.Name, seq)
	if err != nil {
		return failed("read the event", err)
	}
	var found bool
	if tx.snapshot, tx.sizes, found, err = tx.store.scanSnapshot(rows, read); err != nil {
		return failed("read the event", err)
	}
	snapshot := tx.snapshot
	switch {
	case !found:
		return errors.New("the consumer has no cursor: its events are dropped, or follow a rename")
	case snapshot.Reading() == round.Unfinalized:
		return fmt.Errorf("the database is %s, and the cursors follow %s: finalize the restore first", snapshot.Current, snapshot.Stored)
	case snapshot.Cursor < seq:
		return fmt.Errorf("the cursor is at %d, so a round will decide the event: drop it here", snapshot.Cursor)
	case len(snapshot.Events) == 0:
		return errors.New("the log does not hold the event any more, so nobody can decide it: drop it")
	}
	tx.epoch = snapshot.Epoch
	return nil
}

// DropQuarantined gives up an event that the consumer has set aside: it never gets jobs.
func (s *Store) DropQuarantined(ctx context.Context, consumer string, seq int64, reason, by string) (Settled, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var settled Settled
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, `SET LOCAL application_name = 'bothy-quarantine'`); err != nil {
			return err
		}
		settled.Deed, err = settleQuarantined(ctx, tx, s.schema, consumer, seq, QuarantineDropped, settlement{Reason: reason, By: by})
		return err
	})
	if err != nil {
		return Settled{}, fmt.Errorf("drop event %d of consumer %q: %w", seq, consumer, err)
	}
	return settled, nil
}

// settleQuarantined takes an event out of the quarantine and appends to the audit why. schema is quoted.
func settleQuarantined(ctx context.Context, conn Querier, schema, consumer string, seq int64, action Action, details settlement) (deed int64, err error) {
	text, err := json.Marshal(details)
	if err != nil {
		return 0, fmt.Errorf("write the details of %s: %w", action, err)
	}
	err = conn.QueryRow(ctx, `SELECT `+schema+`.settle_quarantined($1, $2, $3, $4)`, consumer, seq, string(action), string(text)).Scan(&deed)
	if sqlState(err) == CodeNotQuarantined {
		return 0, &NotQuarantinedError{consumer, seq}
	}
	return deed, failed("take the event out of the quarantine", err)
}

// Aside is what is known of an event at one consumer that set it aside: that it is in quarantine, or how it left.
type Aside struct {
	Quarantined

	Settled Action // QuarantineRetried or QuarantineDropped; empty while it is in quarantine
	Reason  string // why it was dropped
	Deed    int64  // in the audit
}

// String says what became of it, as the rest of a sentence that begins with the event.
func (a Aside) String() string {
	at := a.At.UTC().Format(time.RFC3339)
	switch a.Settled {
	case QuarantineRetried:
		return fmt.Sprintf("was retried from quarantine on %s (audit %d)", at, a.Deed)
	case QuarantineDropped:
		return fmt.Sprintf("was dropped from quarantine on %s (audit %d): %s", at, a.Deed, a.Reason)
	default:
		return fmt.Sprintf("is in quarantine since %s, with the error %s after %d attempts: %s", at, a.ErrorType, a.Attempts, a.Message)
	}
}

// asides are what the consumers have set aside of one event, and what became of it: the newest word last. schema
// is quoted.
func asides(ctx context.Context, conn Querier, schema string, seq int64) ([]Aside, error) {
	rows, err := conn.Query(ctx, strings.ReplaceAll(`SELECT a.subject, $1::bigint, a.details ->> 'error_type', '', a.at, 0, '', a.action, coalesce(a.details ->> 'reason', ''), a.seq
FROM {schema}.audit_events a WHERE a.action LIKE 'quarantine.%' AND (a.details ->> 'seq')::bigint = $1
UNION ALL SELECT q.consumer, q.seq, q.error_type, q.message, q.at, q.attempts, '', '', '', 9223372036854775807 FROM {schema}.event_quarantine q WHERE q.seq = $1
ORDER BY 10`, "{schema}", schema), seq)
	if err != nil {
		return nil, failed("look for the event in the quarantine", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a Aside, err error) {
		err = row.Scan(&a.Consumer, &a.Seq, &a.ErrorType, &a.Message, &a.At, &a.Attempts, &a.Type, &a.Settled, &a.Reason, &a.Deed)
		return a, err
	})
	return list, failed("look for the event in the quarantine", err)
}
