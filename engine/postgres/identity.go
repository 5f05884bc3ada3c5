// SPDX-License-Identifier: Apache-2.0

package postgres

// sqlMayReadIdentity tells whether this role may call what reads the identity. Hardened servers revoke
// these functions, and a refused call would abort the round.
const sqlMayReadIdentity = `SELECT has_function_privilege('pg_catalog.pg_control_system()', 'execute')
	AND has_function_privilege('pg_catalog.pg_current_wal_lsn()', 'execute')
	AND has_function_privilege('pg_catalog.pg_walfile_name(pg_lsn)', 'execute')`

// The identity as two select expressions. The timeline is that of the log being written: the control file
// keeps the old one until the first checkpoint after a promotion.
const (
	sqlSystem   = `(SELECT system_identifier FROM pg_catalog.pg_control_system())`
	sqlTimeline = `('x' || substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::bigint`
)

// currentIdentity is the two as this store compares them: NULL when it does not, or may not read them.
func (s *Store) currentIdentity() (system, timeline string) {
	if s.identity && s.options.RestoreGuard {
		return sqlSystem, sqlTimeline
	}
	return "NULL::bigint", "NULL::bigint"
}
