// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/bothy/engine/round"
)

// identityFunctions are what tells which server this is. PUBLIC may call them unless the server was hardened, and a
// refused call aborts the transaction that it is made in.
var identityFunctions = []string{
	"pg_control_system()", "pg_control_checkpoint()", "pg_control_recovery()", "pg_current_wal_lsn()", "pg_walfile_name(pg_lsn)",
}

// IdentityFunctions are those functions as a GRANT names them.
func IdentityFunctions() string { return strings.Join(identityFunctions, ", ") }

// sqlMayReadIdentity tells whether this role may call all of them.
var sqlMayReadIdentity = `SELECT has_function_privilege('pg_catalog.` +
	strings.Join(identityFunctions, `', 'execute') AND has_function_privilege('pg_catalog.`) + `', 'execute')`

// The identity as select expressions. The timeline is that of the log being written: the control file
// keeps the old one until the first checkpoint after a promotion.
const (
	sqlSystem   = `(SELECT system_identifier FROM pg_catalog.pg_control_system())`
	sqlTimeline = `('x' || substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::bigint`
)

// sqlDatabase is the number of this database in its server. Everybody may read it.
const sqlDatabase = `(SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())`

// sqlAnyTimeline is the timeline also of a server that writes no log, because it still replays one: the greatest
// that it has reached.
const sqlAnyTimeline = `CASE WHEN pg_catalog.pg_is_in_recovery() THEN greatest(
	(SELECT timeline_id FROM pg_catalog.pg_control_checkpoint()), (SELECT min_recovery_end_timeline FROM pg_catalog.pg_control_recovery()))
ELSE ` + sqlTimeline + ` END`

// currentIdentity is system and timeline as this store compares them; NULL when it does not. Where the role may not read them the
// statement fails: what cannot be compared is never taken for the same.
func (s *Store) currentIdentity() (system, timeline string) {
	if s.options.RestoreGuard {
		return sqlSystem, sqlTimeline
	}
	return "NULL::bigint", "NULL::bigint"
}

// Recognition is what one look at a database says about which one it is.
type Recognition struct {
	Environment string         // what the installation is called; empty when nobody said
	Stored      round.Identity // the server whose history the cursors follow; not Known before the first migration that could read it
	Current     round.Identity // the server that answered; zero when this role may not read it
	Recovering  bool           // it replays a log, and nothing can be written
	Apart       string         // what of counter, log and cursors comes from different moments, in words; empty when they fit
	Lacks       []string       // the statements that let this role read the identity; none when it may
}

// Differs reports whether both identities are known and not the same.
func (r Recognition) Differs() bool {
	return r.Stored.Known() && r.Current.Known() && !r.Stored.Same(r.Current)
}

// GuardApplication is the application name of the connection on which an engine that does no work looks whether it may
// again. It reads one row and is gone.
const GuardApplication = "bothy-guard"

const recognizing = "look which database this is"

// Recognizes reports whether Observe says which database it looks at, since the role could read that when it was last asked.
func (s *Store) Recognizes() bool { return s.identity.Load() }

// Recognize looks which database this is. It needs no right but to read the row of the installation.
func (s *Store) Recognize(ctx context.Context) (Recognition, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.recognize(ctx, s.pool)
}

// RecognizeAside does the same on a connection of its own, which is closed again.
func (s *Store) RecognizeAside(ctx context.Context) (Recognition, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	config := s.pool.Config().ConnConfig
	config.RuntimeParams["application_name"] = GuardApplication
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return Recognition{}, failed(recognizing, err)
	}
	defer closeSoon(ctx, conn)
	return s.recognize(ctx, conn)
}

// Rest closes the connections of the pool, those in use when they are given back. The next one that is needed is made anew.
func (s *Store) Rest() { s.pool.Reset() }

// beginner is a pool or a connection.
type beginner interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

func (s *Store) recognize(ctx context.Context, conn beginner) (r Recognition, err error) {
	const doing = recognizing
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: s.beginLook()})
	if err != nil {
		return r, failed(doing, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var role string
	var readable bool
	if err := tx.QueryRow(ctx, `SELECT current_user, (`+sqlMayReadIdentity+`)`).Scan(&role, &readable); err != nil {
		return r, failed(doing, err)
	}
	system, timeline := "NULL::bigint", "NULL::bigint"
	if readable {
		system, timeline = sqlSystem, sqlAnyTimeline
	} else {
		lacking, err := missing(ctx, tx, identityRights(role), "")
		if err != nil {
			return r, failed(doing, err)
		}
		for _, right := range lacking {
			r.Lacks = append(r.Lacks, right.sql())
		}
	}
	var storedSystem, storedTimeline, storedDatabase, currentSystem, currentTimeline, currentDatabase pgtype.Int8
	var head, highest, lowest, top pgtype.Int8
	err = tx.QueryRow(ctx, `SELECT i.environment, i.pg_system_identifier, i.pg_timeline_id, i.pg_database_oid, `+system+`, `+timeline+`, `+sqlDatabase+`, pg_catalog.pg_is_in_recovery(),
	(SELECT seq FROM `+s.schema+`.event_seq LIMIT 1), (SELECT seq FROM `+s.schema+`.event_log ORDER BY seq DESC LIMIT 1), c.lowest, c.top
FROM `+s.schema+`.instance i CROSS JOIN (SELECT min(last_seq) AS lowest, max(last_seq) AS top FROM `+s.schema+`.event_consumer_cursors) c`).
		Scan(&r.Environment, &storedSystem, &storedTimeline, &storedDatabase, &currentSystem, &currentTimeline, &currentDatabase, &r.Recovering, &head, &highest, &lowest, &top)
	if errors.Is(err, pgx.ErrNoRows) {
		gone := missingInstance(s.options.Schema)
		return r, &gone
	}
	if err != nil {
		return r, failed(doing, err)
	}
	s.identity.Store(readable)
	if head.Valid { // a counter that is gone is told by its own error
		r.Apart = apart(head.Int64, highest.Int64, lowest.Int64, top.Int64)
	}
	r.Stored = round.Identity{System: storedSystem.Int64, Timeline: storedTimeline.Int64, Database: storedDatabase.Int64}
	r.Current = round.Identity{System: currentSystem.Int64, Timeline: currentTimeline.Int64, Database: currentDatabase.Int64}
	return r, nil
}

// apart says what does not fit together: a restore of parts leaves a counter, a log and cursors of different moments. A
// hole up to the head counts only when a cursor has still to pass it. lowest and top are those of the cursors.
func apart(head, highest, lowest, top int64) string {
	switch {
	case top > head:
		return fmt.Sprintf("a consumer stands at %d, above the head %d of the event log", top, head)
	case highest > head:
		return fmt.Sprintf("the event log holds number %d, above its counter, which stands at %d", highest, head)
	case highest < head && lowest < head:
		return fmt.Sprintf("the event log ends in a hole: it lacks %d to %d, which its counter has given", highest+1, head)
	default:
		return ""
	}
}
