// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// endFrozen ends the sessions of this role that lock a cursor and have waited for their own client, in the middle of one
// statement, for longer than any engine that is alive lets a statement take. It answers how many it ended.
//
// No limit of the server covers them: while a COPY waits for its data, or a long answer for somebody to read it, the
// server keeps a cancel back, statement_timeout included, and the session is not idle. An engine that was frozen there
// (a stopped process, a suspended machine) would keep its consumer from every other engine for as long as it stays so.
// Its transaction is rolled back, and once it goes on it finds its connection gone, as after any other loss.
func (s *Store) endFrozen(ctx context.Context, conn *pgx.Conn) (ended int, err error) {
	err = conn.QueryRow(ctx, `SELECT count(*) FILTER (WHERE pg_terminate_backend(a.pid))
		FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid AND l.locktype = 'relation' AND l.granted
			AND l.relation = '`+s.schema+`.event_consumer_cursors'::regclass AND l.mode = 'RowShareLock'
		WHERE a.datname = current_database() AND a.usename = session_user AND a.pid <> pg_backend_pid()
			AND a.state = 'active' AND a.wait_event IN ('ClientRead', 'ClientWrite')
			AND a.query_start < clock_timestamp() - $1::interval`, s.limit).Scan(&ended)
	return ended, err
}

// lookForFrozen calls endFrozen when a cursor is taken, once in the time in which a session can become so. It does not
// fail the round, which ends as taken anyway.
func (s *Store) lookForFrozen(ctx context.Context, conn *pgx.Conn) {
	last := s.looked.Load()
	now := time.Now().UnixNano()
	if s.limit <= 0 || now-last < int64(s.limit) || !s.looked.CompareAndSwap(last, now) {
		return
	}
	if ended, err := s.endFrozen(ctx, conn); err == nil && ended > 0 && s.options.Frozen != nil {
		s.options.Frozen(ended)
	}
}
