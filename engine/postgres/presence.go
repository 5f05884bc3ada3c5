// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// PresenceApplication is the application name of a connection that only shows that an engine runs.
const PresenceApplication = "bothy-presence"

// errFinalizing is why an engine may not be present: it comes back when that is over.
var errFinalizing = errors.New("a restore is being finalized")

// presence takes the lock of running engines for the transaction, as an expression; false while a restore is finalized.
func (s *Store) presence() string {
	return fmt.Sprintf(`pg_catalog.pg_try_advisory_xact_lock_shared(%d)`, presenceKey(s.options.Schema))
}

// showPresence holds the lock of running engines for as long as the connection lives: whoever finalizes a restore then
// knows that one runs, also where pg_stat_activity does not show it.
func showPresence(ctx context.Context, conn *pgx.Conn, schema string) error {
	var shown bool
	err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_try_advisory_lock_shared($1)`, presenceKey(schema)).Scan(&shown)
	if err == nil && !shown {
		err = errFinalizing
	}
	return err
}
