// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/bothy/engine/round"
)

// EndGrace is how long a rollback, or a COMMIT that was sent, may go on once its round was cancelled. Both run on
// a context of their own: a round that is told to stop must still leave a clean connection behind.
const EndGrace = time.Second

// Tx is the transaction of one round. Its methods are called in the order of the round table; it offers
// neither commit nor rollback.
type Tx struct {
	store    *Store
	conn     *pgxpool.Conn
	consumer round.Consumer

	open     bool // BEGIN was sent
	epoch    string
	found    bool // the cursor row exists
	snapshot round.Snapshot
	covered  bool  // the read looked at all the numbers that it had to look at
	ruled    bool  // a rule had the connection
	sizes    sizes // of the events of the snapshot, for a handler
	advance  *move
	held     []statement // sent with the commit
}

// move is the step of a cursor that travels with COMMIT.
type move struct{ from, to int64 }

// statement is one whose result nobody waits for.
type statement struct {
	sql  string
	args []any
}

// Round runs one round of a consumer in a transaction of its own and commits when run returns true. A nil
// error means that it ended as run wanted: committed, or rolled back. After an error nothing was committed
// as far as the engine knows; when only the reply was lost the next round reads the truth.
func (s *Store) Round(ctx context.Context, c round.Consumer, run func(context.Context, *Tx) (commit bool)) error {
	conn, err := s.acquire(ctx)
	if err != nil {
		return failed("get a connection", err)
	}
	tx := &Tx{store: s, conn: conn, consumer: c}
	defer func() {
		// also on a panic: Release closes a connection that is still inside a transaction
		tx.conn.Release()
	}()
	if !run(ctx, tx) {
		tx.rollback(ctx)
		return nil
	}
	if err := ctx.Err(); err != nil {
		tx.rollback(ctx)
		return err
	}
	if err := tx.commit(ctx); err != nil {
		tx.rollback(ctx)
		return err
	}
	return nil
}

// Lock begins the transaction and tries to lock the cursor row, unless the cursor is at the head: then there is nothing
// to do, and nothing is written, not even a lock. The read travels in the same round trip, as a statement of its own
// with a newer snapshot; its result waits for Read. Of a row that is taken, all that counts of it is where the cursor
// stood.
func (tx *Tx) Lock(ctx context.Context) (lock round.Lock, cursor int64, err error) {
	s := tx.store
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`)
	batch.Queue(s.beginSettings(), tx.consumer.Name, s.limits[0], s.limits[1], s.limits[2])
	tx.open = true
	held, done, err := tx.lockAndRead(ctx, batch, s.lockUnlessDone())
	if err == nil && done && tx.found && (!tx.covered || tx.snapshot.Reading() != round.None) {
		// Between the two statements something came, or the head is not all that is to be looked at.
		held, done, err = tx.lockAndRead(ctx, &pgx.Batch{}, s.lockAlways())
	}
	switch {
	case err != nil:
		return "", 0, failed("lock the cursor", err)
	case !tx.found:
		// The read joins the counter and the identity: which of the three is gone is another question.
		if err := checkRows(ctx, tx.conn, s.options.Schema); err != nil {
			return "", 0, err
		}
		return round.Missing, 0, nil
	case held:
		return round.Held, tx.snapshot.Cursor, nil
	case done:
		return round.Quiet, tx.snapshot.Cursor, nil
	default:
		s.lookForFrozen(ctx, tx.conn.Conn())
		return round.Taken, tx.snapshot.Cursor, nil
	}
}

// The two ways to lock the cursor row of a consumer if nobody has it. Both answer whether it is held now, and whether
// it was left alone because the cursor was at the head. What is locked is the newest row, whatever the statement's
// snapshot shows.
//
// Neither locks while a restore is being finalized: the lock of running engines, which lasts for the transaction, is not
// free then.
func (s *Store) lockAlways() string {
	return s.lockStatement(`SELECT ` + s.presence() + ` AS free, false AS done`)
}

func (s *Store) lockUnlessDone() string {
	return s.lockStatement(`SELECT ` + s.presence() + ` AS free, c.last_seq = h.seq AS done
	FROM ` + s.schema + `.event_consumer_cursors c CROSS JOIN (SELECT seq FROM ` + s.schema + `.event_seq LIMIT 1) h WHERE c.name = $1`)
}

func (s *Store) lockStatement(look string) string {
	return `WITH at AS MATERIALIZED (` + look + `), held AS (
	SELECT FROM ` + s.schema + `.event_consumer_cursors WHERE name = $1 AND (SELECT free AND done IS NOT TRUE FROM at) FOR UPDATE SKIP LOCKED
) SELECT EXISTS (SELECT FROM held), COALESCE((SELECT done FROM at), false)`
}

// lockAndRead sends a batch with a lock and the read at its end, and reads all replies.
func (tx *Tx) lockAndRead(ctx context.Context, batch *pgx.Batch, lock string) (held, done bool, err error) {
	before := batch.Len()
	batch.Queue(lock, tx.consumer.Name)
	read := tx.store.readStatement(columnsOf(tx.consumer))
	above, upTo := tx.store.near.window(tx.consumer)
	batch.Queue(read.bounded, tx.consumer.Name, tx.consumer.Batch, above, upTo)
	results := tx.conn.SendBatch(ctx, batch)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	for range before {
		if _, err := results.Exec(); err != nil {
			return false, false, err
		}
	}
	if err := results.QueryRow().Scan(&held, &done); err != nil {
		return false, false, err
	}
	rows, err := results.Query()
	if err != nil {
		return false, false, err
	}
	tx.snapshot, tx.sizes, tx.found, err = tx.store.scanSnapshot(rows, read)
	if err == nil && tx.found {
		cursor := tx.snapshot.Cursor
		tx.covered = above <= cursor && cursor <= upTo-int64(tx.consumer.Batch)
		tx.store.near.note(tx.consumer.Name, cursor)
	}
	return held, done, err
}

// Read is the snapshot that one statement took after the lock. When its events do not run from the cursor
// to the head, or the cursor was elsewhere than where the read looked, a second statement reads the floor as well, and
// its snapshot replaces the first.
func (tx *Tx) Read(ctx context.Context) (round.Snapshot, error) {
	if !tx.covered || !tx.snapshot.Contiguous(tx.consumer.Batch) {
		read := tx.store.readStatement(columnsOf(tx.consumer))
		rows, err := tx.conn.Query(ctx, read.withFloor, tx.consumer.Name, tx.consumer.Batch)
		if err != nil {
			return round.Snapshot{}, failed("read the log again", err)
		}
		var found bool
		tx.snapshot, tx.sizes, found, err = tx.store.scanSnapshot(rows, read)
		if err == nil && !found {
			err = errors.New("the cursor row is gone")
		}
		if err != nil {
			return round.Snapshot{}, failed("read the log again", err)
		}
	}
	tx.epoch = tx.snapshot.Epoch
	return tx.snapshot, nil
}

// Insert adds one job per target, stamped with the epoch that Read saw and with the trace of its event.
func (tx *Tx) Insert(ctx context.Context, targets []round.Target) error {
	if len(targets) == 0 {
		return nil
	}
	jobs := round.Jobs{Epoch: tx.epoch, Targets: targets, Traces: tx.snapshot.Traces()}
	return failed("insert jobs", tx.store.options.Inserter.Insert(ctx, jobTx{tx}, tx.consumer, jobs))
}

// Advance arms the move of the cursor. It is sent together with COMMIT, and the transaction fails unless
// exactly this consumer's row moves from one to the other.
func (tx *Tx) Advance(from, to int64) { tx.advance = &move{from, to} }

// commit sends what was held back, the move of the cursor and COMMIT in one round trip. PostgreSQL answers
// ROLLBACK, without an error, to the COMMIT of a failed transaction: only the tag COMMIT is success.
func (tx *Tx) commit(ctx context.Context) error {
	ctx, cancel := lingering(ctx, EndGrace)
	defer cancel()
	batch := &pgx.Batch{}
	if tx.ruled && tx.consumer.Rule.Kind == round.RuleHandler {
		batch.Queue(sqlUnlockSession)
	}
	for _, s := range tx.held {
		batch.Queue(s.sql, s.args...)
	}
	if tx.advance != nil {
		if read := tx.snapshot.Events; len(read) > 0 && read[0].Seq > tx.advance.from+1 {
			batch.Queue(`SELECT `+tx.store.schema+`.record_loss($1, $2, $3)`, tx.consumer.Name, tx.advance.from+1, read[0].Seq-1)
		}
		batch.Queue(`SELECT `+tx.store.schema+`.advance_cursor($1, $2, $3)`, tx.consumer.Name, tx.advance.from, tx.advance.to)
	}
	batch.Queue(`COMMIT`)
	results := tx.conn.SendBatch(ctx, batch)
	var tag pgconn.CommandTag
	var err error
	for range batch.Len() {
		if tag, err = results.Exec(); err != nil {
			break
		}
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err == nil && tag.String() != "COMMIT" {
		err = fmt.Errorf("the server answered %s to COMMIT", tag)
	}
	if err != nil {
		return failed("commit", err)
	}
	tx.open = false
	if tx.advance != nil {
		tx.store.near.note(tx.consumer.Name, tx.advance.to)
	}
	return nil
}

// rollback ends the transaction whatever became of the round's context. It reports nothing: a connection
// that is not idle afterwards is closed by the pool, and closing it rolls back too.
func (tx *Tx) rollback(ctx context.Context) {
	if !tx.open || tx.conn.Conn().IsClosed() || tx.conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := lingering(ctx, EndGrace)
	defer cancel()
	_, _ = tx.conn.Exec(ctx, `ROLLBACK`)
	tx.open = false
	if tx.ruled {
		// What a rule did to the session, such as taking a lock, outlives a rollback. The rollback comes first all the
		// same: the next round, which may follow at once, must not find the cursor held by a session that is ending.
		_ = tx.conn.Conn().Close(ctx)
	}
}

// beginSettings marks the transaction as a round, so that appending to the log is refused in it, and
// sets the limits. They are local: a pooled connection keeps nothing of them. Compiling a statement costs
// far more than the short ones of a round, and a wrong estimate is enough to start it. Where the server can, it
// looks whether this process is still there while a long rule runs: a killed one must not hold its cursor.
func (s *Store) beginSettings() string {
	settings := `SELECT set_config('bothy.in_round', $1, true), set_config('statement_timeout', $2, true),
	set_config('lock_timeout', $3, true), set_config('idle_in_transaction_session_timeout', $4, true), set_config('jit', 'off', true)`
	if s.checked {
		settings += `, set_config('client_connection_check_interval', '2s', true)`
	}
	return settings
}

// jobTx is the round's transaction as River sees it. River writes jobs with CopyFrom or Query, and sends
// its notification with Exec; that one is held back to travel with the commit.
type jobTx struct{ tx *Tx }

var errOwned = errors.New("the round owns its transaction: it cannot be ended or nested here")

func (j jobTx) Begin(context.Context) (pgx.Tx, error) { return nil, errOwned }
func (j jobTx) Commit(context.Context) error          { return errOwned }
func (j jobTx) Rollback(context.Context) error        { return errOwned }
func (j jobTx) Conn() *pgx.Conn                       { return j.tx.conn.Conn() }
func (j jobTx) LargeObjects() pgx.LargeObjects        { return pgx.LargeObjects{} }

func (j jobTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	return j.Conn().CopyFrom(ctx, table, columns, rows)
}

func (j jobTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return j.Conn().SendBatch(ctx, b)
}

func (j jobTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return j.Conn().Prepare(ctx, name, sql)
}

func (j jobTx) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	j.tx.held = append(j.tx.held, statement{sql, args})
	return pgconn.CommandTag{}, nil
}

func (j jobTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return j.Conn().Query(ctx, sql, args...)
}

func (j jobTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return j.Conn().QueryRow(ctx, sql, args...)
}
