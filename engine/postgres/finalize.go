// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/bothy/engine/restore"
	"example.com/bothy/engine/round"
)

// RestoreApplication is the application name of a connection that finalizes a restore, or looks at one.
const RestoreApplication = "bothy-restore"

// RestoreOptions say how finalizing a restore reaches the database and what belongs to it.
type RestoreOptions struct {
	AdminURL string // connects as a role that may become the owner
	URL      string // of the server process: the role that it connects as counts as the app; empty: the PG* variables
	Schema   string // holds the engine's own tables
	Owner    string // of the schema; empty is the connecting role
	App      string // another role that counts as the app; empty is none
	// Producers append. Sessions of theirs, and of the app, stand in the way.
	Producers []string
	// JobsSchema is where River's tables are. Names and Kinds are those of the declared consumers and their jobs.
	JobsSchema   string
	Names, Kinds []string
	// Cursors are tables of the user's own with positions in the log.
	Cursors []CursorTable
	// LockTimeout is the longest wait for a lock, and for another of these commands to end; 0 means no limit.
	LockTimeout time.Duration
	// Patience is how long sessions that are about to end are waited for; 0 refuses at once.
	Patience time.Duration
	Log      func(line string)
}

// CursorTable is a table of the user's own with positions in the log.
type CursorTable struct {
	Schema, Table, Column string
	Where                 string // which of its rows; empty: all
}

func (t CursorTable) name() string { return t.Schema + "." + t.Table }
func (t CursorTable) sql() string  { return quote(t.Schema) + "." + quote(t.Table) }

// condition is the rows whose position counts.
func (t CursorTable) condition() string {
	if t.Where == "" {
		return "true"
	}
	return "(" + t.Where + ")"
}

// Restorer is one connection of an administrator that looks at a restored database, or finalizes it.
type Restorer struct {
	o     RestoreOptions
	m     *migrator
	tells bool // the server tells who may take a role from who may only hand it on
}

// OpenRestore connects and checks that the schema fits this binary. The caller closes it.
func OpenRestore(ctx context.Context, o RestoreOptions) (*Restorer, error) {
	m, err := cursorMigrator(ctx, CursorOptions{AdminURL: o.AdminURL, Schema: o.Schema, Owner: o.Owner, LockTimeout: o.LockTimeout, Log: o.Log})
	if err != nil {
		return nil, err
	}
	r := &Restorer{o: o, m: m}
	if err := r.prepare(ctx); err != nil {
		r.Close()
		return nil, Explain(err)
	}
	return r, nil
}

func (r *Restorer) prepare(ctx context.Context) error {
	if err := r.m.checkServer(ctx); err != nil {
		return err
	}
	// What a pooler or an old session of this role may have set does not matter here.
	// Rows that a policy hides would be left where they are: an error says so instead.
	_, err := r.m.conn.Exec(ctx, `SET application_name = '`+RestoreApplication+`'; SET row_security = off`)
	if err == nil {
		err = r.m.conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int >= 160000`).Scan(&r.tells)
	}
	return failed("begin to look at the restore", err)
}

// Close ends the connection.
func (r *Restorer) Close() { r.m.close() }

// Look reads where everything stands in one snapshot, without a lock, and who is connected.
func (r *Restorer) Look(ctx context.Context) (state restore.State, sessions []restore.Session, jobs []restore.JobCount, at time.Time, err error) {
	err = pgx.BeginTxFunc(ctx, r.m.conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(pg pgx.Tx) error {
		tx := &FinalizeTx{r: r, pg: pg}
		if sessions, err = tx.sessions(ctx, []string{roleApp, roleProducers}); err != nil {
			return err
		}
		if err := pg.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&at); err != nil {
			return err
		}
		if tx.identity, err = readIdentity(ctx, pg); err != nil { // as Lock does
			return err
		}
		if err := r.m.actAsOwner(ctx, pg); err != nil {
			return err
		}
		if state, err = tx.state(ctx); err != nil {
			return err
		}
		jobs, err = tx.countJobs(ctx, "")
		return err
	})
	return state, sessions, jobs, at, Explain(err)
}

// LastFinalize is the newest deed on the installation as a whole: a finalize or a relocation.
func (r *Restorer) LastFinalize(ctx context.Context) (seq int64, at time.Time, action string, details []byte, err error) {
	err = pgx.BeginFunc(ctx, r.m.conn, func(pg pgx.Tx) error {
		if err := r.m.actAsOwner(ctx, pg); err != nil {
			return err
		}
		err := pg.QueryRow(ctx, `SELECT seq, at, action, details::text FROM `+quote(r.o.Schema)+`.audit_events
WHERE action IN ('instance.restore_finalized', 'instance.relocated') ORDER BY seq DESC LIMIT 1`).Scan(&seq, &at, &action, &details)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return seq, at, action, details, Explain(failed("read the audit", err))
}

// Finalize runs one transaction; it commits when run returns true. Two at the same moment take turns.
func (r *Restorer) Finalize(ctx context.Context, run func(context.Context, *FinalizeTx) (commit bool)) error {
	if err := r.m.lockOut(ctx, r.o.LockTimeout); err != nil {
		return err
	}
	defer func() { // whoever keeps the connection open must not keep others waiting
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer cancel()
		_, _ = r.m.conn.Exec(limited, `SELECT pg_catalog.pg_advisory_unlock($1)`, lockKey(r.o.Schema)) // it ends with the session
	}()
	pg, err := r.m.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return Explain(failed("begin to finalize", err))
	}
	ending := context.WithoutCancel(ctx)
	if !run(ctx, &FinalizeTx{r: r, pg: pg}) {
		limited, cancel := context.WithTimeout(ending, endLimit)
		defer cancel()
		_ = pg.Rollback(limited) // the session ends with the command, and with it the transaction
		return nil
	}
	if err := ctx.Err(); err != nil {
		_ = pg.Rollback(ending)
		return err
	}
	// A COMMIT that was sent is waited for, also by who is told to stop: else nobody knows what became of it.
	limited, cancel := context.WithTimeout(ending, endLimit)
	defer cancel()
	err = pg.Commit(limited)
	if err != nil && sqlState(err) == "" && !errors.Is(err, pgx.ErrTxCommitRollback) {
		return &UncertainError{err}
	}
	return Explain(failed("commit", err))
}

// UncertainError says that nobody knows whether a COMMIT was done.
type UncertainError struct{ cause error }

func (e *UncertainError) Error() string {
	return fmt.Sprintf("the reply to COMMIT is lost (%v), so it may have been done or not: run `engine restore status`, which says", e.cause)
}

// Unwrap is what happened to the connection.
func (e *UncertainError) Unwrap() error { return e.cause }

// Uncertain is always true.
func (e *UncertainError) Uncertain() bool { return true }

// FinalizeTx is the transaction of a finalize.
type FinalizeTx struct {
	r        *Restorer
	pg       pgx.Tx
	identity round.Identity // as the connecting role reads it
}

// Look reads without a lock, and goes on as the role that connected.
func (t *FinalizeTx) Look(ctx context.Context) (s restore.State, err error) {
	if t.identity, err = readIdentity(ctx, t.pg); err != nil {
		return s, err
	}
	if err := t.r.m.actAsOwner(ctx, t.pg); err != nil {
		return s, failed("become the owner", err)
	}
	if s, err = t.state(ctx); err != nil {
		return s, err
	}
	_, err = t.pg.Exec(ctx, `SET LOCAL ROLE NONE`)
	return s, failed("change back to the connecting role", err)
}

// Lock takes the locks of the instance row and of the counter, in this order, and then reads.
func (t *FinalizeTx) Lock(ctx context.Context) (restore.State, error) {
	var err error
	// The connecting role may read what the owner may not.
	if t.identity, err = readIdentity(ctx, t.pg); err != nil {
		return restore.State{}, err
	}
	if err := t.r.m.actAsOwner(ctx, t.pg); err != nil {
		return restore.State{}, failed("become the owner", err)
	}
	in := quote(t.r.o.Schema) + "."
	for _, table := range []string{"instance", "event_seq"} {
		tag, err := t.pg.Exec(ctx, `SELECT FROM `+in+table+` FOR UPDATE`)
		switch {
		case sqlState(err) == codeLockTimeout:
			return restore.State{}, &BusyError{fmt.Sprintf("another transaction holds the row of %s%s: pg_locks names its session; one that was prepared for two-phase commit has none, and pg_prepared_xacts names it", in, table)}
		case err != nil:
			return restore.State{}, failed("lock "+table, err)
		case tag.RowsAffected() == 0 && table == "instance":
			gone := missingInstance(t.r.o.Schema)
			return restore.State{}, &gone
		}
	}
	if err := t.stillAlone(ctx); err != nil {
		return restore.State{}, err
	}
	return t.state(ctx)
}

// stillAlone looks again who is connected, now that nobody can append any more: whoever came after the first look and was
// quick has appended below the head, and every cursor would pass it.
func (t *FinalizeTx) stillAlone(ctx context.Context) error {
	if _, err := t.pg.Exec(ctx, `SET LOCAL ROLE NONE`); err != nil {
		return failed("change back to the connecting role", err)
	}
	late, err := t.sessions(ctx, []string{roleApp, roleProducers})
	if err != nil {
		return err
	}
	if len(late) > 0 {
		return &BusyError{fmt.Sprintf("somebody connected while the locks were taken (%s): close that, and run it again", late[0])}
	}
	return failed("become the owner", t.r.m.actAsOwner(ctx, t.pg))
}

// readIdentity reads which server this is; zero when this role may not.
func readIdentity(ctx context.Context, conn Querier) (i round.Identity, err error) {
	var may bool
	if err := conn.QueryRow(ctx, sqlMayReadIdentity).Scan(&may); err != nil || !may {
		return i, failed("ask for the right to read the identity of the server", err)
	}
	err = conn.QueryRow(ctx, `SELECT `+sqlSystem+`, `+sqlTimeline+`, `+sqlDatabase).Scan(&i.System, &i.Timeline, &i.Database)
	return i, failed("read the identity of the server", err)
}

// SetCounter sets the counter of the log. A row that is gone is made anew, with room up to the last partition.
func (t *FinalizeTx) SetCounter(ctx context.Context, head int64) error {
	in := quote(t.r.o.Schema) + "."
	tag, err := t.pg.Exec(ctx, `UPDATE `+in+`event_seq SET seq = $1 WHERE seq < $1`, head)
	if err == nil && tag.RowsAffected() == 0 {
		_, err = t.pg.Exec(ctx, `INSERT INTO `+in+`event_seq (seq, upper_bound)
SELECT $1, coalesce((SELECT max(after) FROM `+in+`event_log_partitions()), 1)`, head)
	}
	return failed("set the counter of the event log", err)
}

// SetEpoch writes the new epoch.
func (t *FinalizeTx) SetEpoch(ctx context.Context, epoch string) error {
	_, err := t.pg.Exec(ctx, `UPDATE `+quote(t.r.o.Schema)+`.instance SET sync_epoch = $1::text::uuid`, epoch)
	return failed("write the new epoch", err)
}

// StoreIdentity writes the identity, and the environment unless it is empty.
func (t *FinalizeTx) StoreIdentity(ctx context.Context, identity round.Identity, environment string) error {
	_, err := t.pg.Exec(ctx, `UPDATE `+quote(t.r.o.Schema)+`.instance SET pg_system_identifier = $1, pg_timeline_id = $2, pg_database_oid = nullif($3::bigint, 0),
	environment = coalesce(nullif($4, ''), environment)`, identity.System, identity.Timeline, identity.Database, environment)
	return failed("store the identity", err)
}

// Audit appends one deed on the installation.
func (t *FinalizeTx) Audit(ctx context.Context, action string, details any) (seq int64, err error) {
	text, err := json.Marshal(details)
	if err != nil {
		return 0, fmt.Errorf("write the details of %s: %w", action, err)
	}
	in := quote(t.r.o.Schema) + "."
	err = t.pg.QueryRow(ctx, `SELECT `+in+`append_audit($1, i.id::text, $2) FROM `+in+`instance i`, action, string(text)).Scan(&seq)
	return seq, failed("append to the audit", err)
}

// ownCursors are the tables of cursors of the engine's own, and what names a row there.
var ownCursors = []struct{ table, column, name string }{
	{"event_consumer_cursors", "last_seq", "name"},
	{"agent_consumer_cursors", "acked_seq", ""},
	{"webhook_subscriptions", "last_delivered_seq", ""},
}

// state reads where everything stands. It acts as the owner; for a table of the user's it changes over to whoever may
// read it.
func (t *FinalizeTx) state(ctx context.Context) (s restore.State, err error) {
	in := quote(t.r.o.Schema) + "."
	s.Current = t.identity
	if !s.Current.Known() {
		if s.Current, err = readIdentity(ctx, t.pg); err != nil {
			return s, err
		}
	}
	var system, timeline, database pgtype.Int8
	var counter *int64
	err = t.pg.QueryRow(ctx, `SELECT i.environment, i.sync_epoch::text, i.pg_system_identifier, i.pg_timeline_id, i.pg_database_oid,
	(SELECT seq FROM `+in+`event_seq LIMIT 1), coalesce(l.seq, 0), coalesce(l.id::text, '')
FROM `+in+`instance i LEFT JOIN (SELECT seq, id FROM `+in+`event_log ORDER BY seq DESC LIMIT 1) l ON true`).
		Scan(&s.Environment, &s.Epoch, &system, &timeline, &database, &counter, &s.Highest, &s.HeadEvent)
	if errors.Is(err, pgx.ErrNoRows) {
		gone := missingInstance(t.r.o.Schema)
		return s, &gone
	}
	if err != nil {
		return s, failed("read where the log stands", err)
	}
	s.Stored, s.Counter = round.Identity{System: system.Int64, Timeline: timeline.Int64, Database: database.Int64}, counter
	for _, own := range ownCursors {
		c, err := t.standing(ctx, in+own.table, own.column, "true", own.name)
		if err != nil {
			return s, err
		}
		c.Table, c.Column = own.table, own.column
		s.Cursors = append(s.Cursors, c)
		if err := t.apart(ctx, in+own.table, own.column, "true", &s); err != nil {
			return s, err
		}
	}
	head, err := ReadAuditHead(ctx, t.pg, t.r.o.Schema)
	apart, ok := errors.AsType[*AuditHeadError](err)
	if err != nil && !ok {
		return s, err
	}
	s.Audit = restore.Audit{Seq: head.Seq, Hash: head.Hash}
	if ok { // a deed is written all the same: who lost rows of the audit has to finalize no less
		s.Audit.Flaw = apart.Error()
	}
	err = t.pg.QueryRow(ctx, `SELECT count(*) FILTER (WHERE seq > $1), count(*) FILTER (WHERE seq <= $1) FROM `+in+`event_quarantine`, s.Head()).Scan(&s.Aside.Above, &s.Aside.Stay)
	if err != nil {
		return s, failed("count the events in quarantine", err)
	}
	for _, table := range t.r.o.Cursors {
		if err := t.actFor(ctx, table.name(), table.sql(), "SELECT"); err != nil {
			return s, err
		}
		c, err := t.standing(ctx, table.sql(), table.Column, table.condition(), "")
		if err != nil {
			return s, err
		}
		c.Table, c.Column = table.name(), table.Column
		s.Cursors = append(s.Cursors, c)
		if err := t.apart(ctx, table.sql(), table.Column, table.condition(), &s); err != nil {
			return s, err
		}
	}
	return s, failed("become the owner", t.r.m.actAsOwner(ctx, t.pg))
}

// standing reads where the cursors of one table stand, one by one where they have names.
func (t *FinalizeTx) standing(ctx context.Context, table, column, where, name string) (c restore.Cursor, err error) {
	column = quote(column)
	err = t.pg.QueryRow(ctx, `SELECT count(`+column+`), min(`+column+`)::bigint, max(`+column+`)::bigint FROM `+table+` WHERE `+where).Scan(&c.Rows, &c.Lowest, &c.Top)
	if err != nil || name == "" {
		return c, failed("read the cursors of "+table, err)
	}
	rows, err := t.pg.Query(ctx, `SELECT `+name+`, `+column+` FROM `+table+` ORDER BY 1`)
	if err != nil {
		return c, failed("read the cursors of "+table, err)
	}
	c.Named, err = pgx.CollectRows(rows, pgx.RowToStructByPos[restore.Position])
	return c, failed("read the cursors of "+table, err)
}

// apart counts the rows of the table that was read last which are not at the head.
func (t *FinalizeTx) apart(ctx context.Context, table, column, where string, s *restore.State) error {
	c := &s.Cursors[len(s.Cursors)-1]
	err := t.pg.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FILTER (WHERE %[1]s < $1), count(*) FILTER (WHERE %[1]s > $1) FROM %[2]s WHERE %[3]s`, quote(column), table, where), s.Head()).
		Scan(&c.Behind, &c.Ahead)
	return failed("count the cursors of "+table, err)
}

// actFor changes over to a role that may do verbs with a table that is not the engine's: the owner, else whoever
// connected.
func (t *FinalizeTx) actFor(ctx context.Context, name, table string, verbs ...string) error {
	if err := t.r.m.actAsOwner(ctx, t.pg); err != nil {
		return failed("become the owner", err)
	}
	var exists bool
	// Asking about a schema that is closed to the role is an error, which must not end the transaction.
	asked := func() (all bool, err error) {
		err = pgx.BeginFunc(ctx, t.pg, func(inner pgx.Tx) error {
			return inner.QueryRow(ctx, `SELECT pg_catalog.to_regclass($1) IS NOT NULL, coalesce((SELECT bool_and(pg_catalog.has_table_privilege(pg_catalog.to_regclass($1), v)) FROM unnest($2::text[]) v)
	AND NOT pg_catalog.row_security_active(pg_catalog.to_regclass($1)), false)`,
				table, verbs).Scan(&exists, &all)
		})
		if sqlState(err) == codeInsufficientRight {
			return false, nil
		}
		return all, failed("ask for the rights on "+name, err)
	}
	all, err := asked()
	if err != nil || all {
		return err
	}
	if _, err := t.pg.Exec(ctx, `SET LOCAL ROLE NONE`); err != nil {
		return failed("change back to the connecting role", err)
	}
	// Triggers of the table run as whoever changes it. That is the table's owner where it can be, and never a superuser for
	// the table of somebody else.
	becomes, super, err := t.ownerOf(ctx, table)
	if err != nil {
		return failed("look for the owner of "+name, err)
	}
	if becomes {
		if all, err = asked(); err != nil || all {
			return err
		}
		if _, err := t.pg.Exec(ctx, `SET LOCAL ROLE NONE`); err != nil {
			return failed("change back to the connecting role", err)
		}
	}
	if !super {
		if all, err = asked(); err != nil || all {
			return err
		}
	}
	if !exists {
		return fmt.Errorf("there is no table %s, or neither this role nor the owner may see it", name)
	}
	schema, _ := splitTable(name)
	return fmt.Errorf("neither this role nor the owner may do this with every row of %s: have its owner run: GRANT %s ON %s TO %s (and GRANT USAGE ON SCHEMA %s TO %s); where row-level security hides rows, connect as a role with BYPASSRLS",
		name, joined([]string{"SELECT", "UPDATE"}), table, quote(t.r.m.report.Owner), quote(schema), quote(t.r.m.report.Owner))
}

// ownerOf becomes the owner of a table, where the connecting role may, and says whether that one is a superuser.
func (t *FinalizeTx) ownerOf(ctx context.Context, table string) (becomes, super bool, err error) {
	var owner *string
	err = pgx.BeginFunc(ctx, t.pg, func(inner pgx.Tx) error {
		return inner.QueryRow(ctx, `SELECT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user),
	(SELECT r.rolname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_roles r ON r.oid = c.relowner WHERE c.oid = pg_catalog.to_regclass($1))`, table).Scan(&super, &owner)
	})
	switch {
	case sqlState(err) == codeInsufficientRight: // its schema is closed to this role
		return false, super, nil
	case err != nil || owner == nil:
		return false, super, err
	}
	err = pgx.BeginFunc(ctx, t.pg, func(inner pgx.Tx) error {
		_, err := inner.Exec(ctx, `SET LOCAL ROLE `+quote(*owner))
		return err
	})
	if sqlState(err) == codeInsufficientRight {
		return false, super, nil
	}
	return err == nil, super, err
}

// isOwn is the row of ownCursors of a table and its column.
func isOwn(table, column string) bool {
	return slices.ContainsFunc(ownCursors, func(c struct{ table, column, name string }) bool { return c.table == table && c.column == column })
}
