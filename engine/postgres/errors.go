// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// The SQLSTATEs that the functions of the schema raise.
const (
	CodeAppendInRound = "BT001" // an event was appended inside a round
	CodeCursorMoved   = "BT002" // a cursor did not move as expected
	CodeNoPartition   = "BT003" // the log has no partition for the next number
	CodeNoCounter     = "BT004" // the counter row of the log or of the audit is missing
	CodeAuditChange   = "BT005" // a row of the audit was to be changed or removed

	CodeNotQuarantined = "BT006" // an event to be settled is not in quarantine
)

// Further conditions that setting up a database tells apart.
const (
	codeDuplicateObject = "42710"
	codeDuplicateSchema = "42P06"
	codeUniqueViolation = "23505"
	codeInternal        = "XX000"
)

// Explain adds to an error of the server what a person can do about it. Other errors pass through.
func Explain(err error) error {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return err
	}
	advice := answer.Hint
	switch answer.Code {
	case "3D000":
		advice = "create the database first, with ENCODING 'UTF8', or correct database.url"
	case "28P01", "28000":
		advice = "check the user and the password of the database URL, and the server's pg_hba.conf"
	case "42501":
		advice = "this role lacks a right: run `engine migrate up` as the owner, or `engine migrate sql` for an administrator"
	case "42P01", "42883", "3F000":
		advice = "run `engine migrate up`"
	case "53300":
		advice = "the server has no free connection: lower database.pool_max_conns or raise max_connections"
	case "25006":
		advice = "the server takes no changes: connect to the primary"
	}
	if advice == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, advice)
}
