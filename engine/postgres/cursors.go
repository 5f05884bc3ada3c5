// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Cursors is where all cursors stand, which names the database lets in, and what the audit knows of them.
type Cursors struct {
	Head  int64            // of the log
	Rows  map[string]int64 // the cursors: last_seq by name
	Known []string         // the names that a cursor may have, sorted
	Deeds []Deed           // about consumers, in their order
	// Aside is how many events the consumer of a change has in quarantine.
	Aside int64
	// Asked is what the log holds of the range that a change asks about; nil when it asks about none.
	Asked *LogRange
}

// LogRange is what the log holds of a range of numbers.
type LogRange struct {
	Held  int64 // events with a number in the range
	Floor int64 // the lowest number that the log holds; 0 when it is empty
	Next  int64 // the lowest number above the range that it holds; 0 when there is none
}

// readRange reads what the log holds of the numbers first to last.
func readRange(ctx context.Context, conn Querier, schema string, first, last int64) (*LogRange, error) {
	var r LogRange
	log := quote(schema) + ".event_log"
	err := conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM `+log+` WHERE seq >= $1 AND seq <= $2),
	coalesce((SELECT seq FROM `+log+` ORDER BY seq LIMIT 1), 0), coalesce((SELECT seq FROM `+log+` WHERE seq > $2 ORDER BY seq LIMIT 1), 0)`,
		first, last).Scan(&r.Held, &r.Floor, &r.Next)
	return &r, failed("look for events in the log", err)
}

// Lag is how many events a consumer has still to see, never below 0.
func (c Cursors) Lag(name string) int64 { return max(0, c.Head-c.Rows[name]) }

// readCursors reads them with the rights of any role of the engine.
func readCursors(ctx context.Context, conn Querier, schema string) (Cursors, error) {
	c := Cursors{Rows: map[string]int64{}}
	rows, err := conn.Query(ctx, fmt.Sprintf(`SELECT h.seq, c.name, c.last_seq
FROM %[1]s.event_seq h LEFT JOIN %[1]s.event_consumer_cursors c ON true`, quote(schema)))
	if err != nil {
		return c, failed("read the cursors", err)
	}
	var name *string
	var at *int64
	_, err = pgx.ForEachRow(rows, []any{&c.Head, &name, &at}, func() error {
		if name != nil {
			c.Rows[*name] = *at
		}
		return nil
	})
	if err != nil {
		return c, failed("read the cursors", err)
	}
	if c.Known, err = readNames(ctx, conn, schema); err != nil {
		return c, err
	}
	c.Deeds, err = consumerDeeds(ctx, conn, schema)
	return c, err
}

// Cursors reads where all cursors stand.
func (s *Store) Cursors(ctx context.Context) (Cursors, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return readCursors(ctx, s.pool, s.options.Schema)
}

// CursorOptions say how a change of cursors reaches the database and what it writes of itself.
type CursorOptions struct {
	AdminURL    string        // connects as a role that may become the owner
	Schema      string        // holds the engine's own tables
	Owner       string        // of the schema; empty is the connecting role
	By          string        // the account of the operating system, for the audit
	LockTimeout time.Duration // the longest wait for a round of the consumer, or another change, to end; 0 means no limit
	// StatementTimeout bounds each statement; 0 means no limit.
	StatementTimeout time.Duration
	Log              func(line string)
}

// CursorChange is what is to be done with the cursor of one consumer: what it decides under the lock is what
// is done.
type CursorChange struct {
	// Name is the consumer whose cursor is locked.
	Name string
	// First and Last are a range of numbers of the log that Decide wants to know about, as Cursors.Asked; zero
	// for none. While the change is carried out, nobody can write to the log.
	First, Last int64
	// Decide says what to do, from what it sees, or refuses with an error. It is called without a lock for
	// a preview, and again under the lock for the change.
	Decide func(Cursors) (CursorStep, error)
}

// look reads what Decide is given.
func (c CursorChange) look(ctx context.Context, conn Querier, schema string) (Cursors, error) {
	state, err := readCursors(ctx, conn, schema)
	if err == nil {
		err = failed("count the quarantine", conn.QueryRow(ctx, `SELECT count(*) FROM `+quote(schema)+`.event_quarantine WHERE consumer = $1`, c.Name).Scan(&state.Aside))
	}
	if err == nil && c.Last > 0 {
		state.Asked, err = readRange(ctx, conn, schema, c.First, c.Last)
	}
	return state, err
}

// others are those that lock keeps out.
func (c CursorChange) others() string {
	if c.Last > 0 {
		return "producers are appending"
	}
	return "rounds are running"
}

// lock keeps out whoever could change what Decide looks at. It is not waited for long: others queue up behind
// whoever waits.
func (c CursorChange) lock(ctx context.Context, tx pgx.Tx, schema string) error {
	lock := `LOCK TABLE ` + quote(schema) + `.event_consumer_cursors IN ACCESS EXCLUSIVE MODE`
	if c.Last > 0 {
		// the names stay as they are, and the row is locked; a missing event could be put back just now
		lock = `LOCK TABLE ` + quote(schema) + `.event_log IN SHARE MODE`
	}
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '500ms'`); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, lock)
	return err
}

// CursorStep is one change of a cursor. The zero value changes nothing.
type CursorStep struct {
	Action  Action // any but ConsumerCreated; empty: there is nothing to do
	Details DeedDetails
	Note    string // for people, when there is nothing to do
}

// PreviewCursor decides a change and carries nothing out. It takes no lock.
func PreviewCursor(ctx context.Context, o CursorOptions, change CursorChange) (CursorStep, error) {
	m, err := cursorMigrator(ctx, o)
	if err != nil {
		return CursorStep{}, err
	}
	defer m.close()
	var state Cursors
	err = pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		if err := m.actAsOwner(ctx, tx); err != nil {
			return err
		}
		state, err = change.look(ctx, tx, o.Schema)
		return err
	})
	if err != nil {
		return CursorStep{}, Explain(err)
	}
	return change.Decide(state)
}

// ChangeCursor carries a change out in one transaction: under the lock of the cursor row and of the table, it
// decides, moves or removes the row, replaces the names that a cursor may have, and appends to the audit.
// It answers the number of the deed, or 0 when there was nothing to do.
func ChangeCursor(ctx context.Context, o CursorOptions, change CursorChange) (step CursorStep, deed int64, err error) {
	m, err := cursorMigrator(ctx, o)
	if err != nil {
		return CursorStep{}, 0, err
	}
	defer m.close()
	// Two changes at once would each hold what the other waits for.
	if err := m.lockOut(ctx, o.LockTimeout); err != nil {
		return CursorStep{}, 0, err
	}
	var refused error
	waits := false
	err = m.asOwner(ctx, fmt.Sprintf("change the cursor of consumer %q", change.Name), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL application_name = 'bothy-consumers'`); err != nil {
			return err
		}
		refused = m.lockCursorRow(ctx, tx, change.Name, o.LockTimeout)
		if refused != nil {
			return refused
		}
		if err := change.lock(ctx, tx, o.Schema); err != nil {
			if !waits {
				m.logf("%s: waiting for a moment without one", change.others())
			}
			waits = true
			return err
		}
		state, err := change.look(ctx, tx, o.Schema)
		if err != nil {
			return err
		}
		if step, refused = change.Decide(state); refused != nil || step.Action == "" {
			return refused
		}
		step.Details.By = o.By
		if err := applyStep(ctx, tx, o.Schema, change.Name, step, state); err != nil {
			return err
		}
		if err := moveQuarantine(ctx, tx, o.Schema, change.Name, step); err != nil {
			return err
		}
		deed, err = appendAudit(ctx, tx, o.Schema, step.Action, change.Name, step.Details)
		return err
	})
	switch {
	case refused != nil:
		return step, 0, refused
	case sqlState(err) == codeLockTimeout:
		return step, 0, &BusyError{change.others() + ", and left no moment without one in ten attempts"}
	default:
		return step, deed, Explain(err)
	}
}

// lockOut keeps other changes and migrations out until the connection ends.
func (m *migrator) lockOut(ctx context.Context, patience time.Duration) error {
	var free bool
	err := m.conn.QueryRow(ctx, `SELECT pg_catalog.pg_try_advisory_lock($1)`, lockKey(m.o.Schema)).Scan(&free)
	if err == nil && !free {
		m.logf("another change or migration is running: waiting for its end, up to %v", patience)
		_, err = m.conn.Exec(ctx, `SELECT pg_catalog.pg_advisory_lock($1)`, lockKey(m.o.Schema))
	}
	if sqlState(err) == codeLockTimeout {
		return &BusyError{fmt.Sprintf("another change or migration has not ended within database.lock_timeout (%v)", patience)}
	}
	return failed("wait for another change or migration to end", err)
}

// cursorMigrator is the connection of an administrator, which becomes the owner for each change.
func cursorMigrator(ctx context.Context, o CursorOptions) (*migrator, error) {
	m, err := newMigrator(ctx, MigrateOptions{AdminURL: o.AdminURL, Schema: o.Schema, Owner: o.Owner, Log: o.Log, StatementTimeout: o.StatementTimeout, LockTimeout: o.LockTimeout})
	if err != nil {
		return nil, err
	}
	applied, err := readApplied(ctx, m.conn, o.Schema)
	if err == nil {
		err = applied.check(o.Schema, m.all)
	}
	if err == nil {
		err = m.joinOwner(ctx)
	}
	if err != nil {
		m.close()
		return nil, Explain(err)
	}
	return m, nil
}

// BusyError says that rounds did not leave a moment for the change. Nothing was changed.
type BusyError struct{ What string }

func (e *BusyError) Error() string {
	return e.What + ": nothing was changed; run the command again, or stop the engine for it"
}

// lockCursorRow waits for a round of the consumer to end. A round of it that starts meanwhile finds the row
// taken and ends at once, so the wait harms nobody.
func (m *migrator) lockCursorRow(ctx context.Context, tx pgx.Tx, name string, patience time.Duration) error {
	from := ` FROM ` + quote(m.o.Schema) + `.event_consumer_cursors WHERE name = $1`
	var exists, held bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT`+from+`)`, name).Scan(&exists)
	if err == nil {
		err = tx.QueryRow(ctx, `SELECT true`+from+` FOR UPDATE SKIP LOCKED`, name).Scan(&held)
	}
	if exists && errors.Is(err, pgx.ErrNoRows) {
		m.logf("a round of consumer %q is running: waiting up to %v for its end", name, patience)
		if _, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', $1, true)`, milliseconds(patience)); err != nil {
			return failed("limit the wait for the cursor", err)
		}
		err = tx.QueryRow(ctx, `SELECT true`+from+` FOR UPDATE`, name).Scan(&held)
	}
	switch {
	case sqlState(err) == codeLockTimeout:
		return &BusyError{fmt.Sprintf("a round of consumer %q has not ended within database.lock_timeout (%v)", name, patience)}
	case errors.Is(err, pgx.ErrNoRows):
		return nil // what follows from a row that is not there is decided later
	default:
		return failed("lock the cursor", err)
	}
}

// skipTo moves the cursor to the end of a hole. The row is locked and was looked at under the lock.
func skipTo(ctx context.Context, tx pgx.Tx, schema, name string, details DeedDetails) error {
	_, err := tx.Exec(ctx, `UPDATE `+quote(schema)+`.event_consumer_cursors SET last_seq = $2, updated_at = now() WHERE name = $1`, name, details.Last)
	return failed("move the cursor over the hole", err)
}

// moveQuarantine lets the events that the consumer has set aside follow its cursor.
func moveQuarantine(ctx context.Context, tx pgx.Tx, schema, name string, step CursorStep) (err error) {
	table := quote(schema) + ".event_quarantine"
	switch step.Action {
	case ConsumerRenamed:
		_, err = tx.Exec(ctx, `UPDATE `+table+` SET consumer = $2 WHERE consumer = $1`, name, step.Details.To)
	case ConsumerRetired:
		_, err = tx.Exec(ctx, `DELETE FROM `+table+` WHERE consumer = $1`, name)
	case ConsumerCreated, ConsumerLost, ConsumerSkipped, QuarantineRetried, QuarantineDropped, EnvironmentChanged, RestoreFinalized, Relocated:
	}
	return failed("move what the consumer has set aside", err)
}

// applyStep changes the names that a cursor may have and then the row. A name that has had its day is not let
// in again: an engine that still has the old file then refuses to start instead of making a second cursor.
func applyStep(ctx context.Context, tx pgx.Tx, schema, name string, step CursorStep, state Cursors) error {
	if step.Action == ConsumerSkipped {
		return skipTo(ctx, tx, schema, name, step.Details)
	}
	names := state.Known
	for row := range state.Rows {
		names = append(names, row)
	}
	names = slices.DeleteFunc(sortedUnion(names, nil), func(n string) bool { return n == name })
	table := quote(schema) + ".event_consumer_cursors"
	drop := `ALTER TABLE ` + table + ` DROP CONSTRAINT IF EXISTS ` + nameCheck
	var statement string
	args := []any{name}
	switch step.Action {
	case ConsumerRenamed:
		names = sortedUnion(names, []string{step.Details.To})
		statement, args = `UPDATE `+table+` SET name = $2 WHERE name = $1`, append(args, step.Details.To)
	case ConsumerRetired:
		statement = `DELETE FROM ` + table + ` WHERE name = $1`
	case ConsumerCreated, ConsumerLost, ConsumerSkipped, QuarantineRetried, QuarantineDropped, EnvironmentChanged, RestoreFinalized, Relocated:
		return fmt.Errorf("no cursor is made or moved here: %s", step.Action)
	default:
		return fmt.Errorf("a cursor knows no action %q", step.Action)
	}
	if _, err := tx.Exec(ctx, drop); err != nil {
		return failed("free the names of the consumers", err)
	}
	if _, err := tx.Exec(ctx, statement, args...); err != nil {
		return failed("change the cursor", err)
	}
	_, err := tx.Exec(ctx, namesSQL(schema, names))
	return failed("set the names of the consumers", err)
}
