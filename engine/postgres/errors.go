// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"errors"
	"net"
	"strings"

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

// unreached says in one line why no connection was made. What the driver says has a line for each address and
// each attempt, and most of them say the same.
func unreached(err error) error {
	if err == nil {
		return nil
	}
	what := strings.Join(strings.Fields(err.Error()), " ")
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		what = answer.Message
	} else if wire, ok := errors.AsType[*net.OpError](err); ok {
		what = wire.Error()
	} else if name, ok := errors.AsType[*net.DNSError](err); ok {
		what = name.Error()
	}
	advice := "check that the server runs, and the host and the port"
	if explained, ok := errors.AsType[*advised](Explain(err)); ok {
		advice = explained.advice
	}
	return &advised{cause: failed("connect to the database", err), text: "no connection: " + what, advice: advice}
}

// connecting says what went wrong with the first statement over a new connection.
func connecting(err error) error {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return unreached(err)
	}
	return failed("connect to the database", Explain(err))
}

// advised is an error with what a person can do about it.
type advised struct {
	cause        error
	text, advice string
}

func (e *advised) Error() string { return e.text + ": " + e.advice }

func (e *advised) Unwrap() error { return e.cause }

// Advice splits an error into what happened and what a person can do about it, which may be empty.
func Advice(err error) (what, advice string) {
	if e, ok := err.(*advised); ok { //nolint:errorlint // a wrapped one has more to say
		return e.text, e.advice
	}
	return err.Error(), ""
}

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
	case codeLockTimeout:
		advice = "another session keeps a lock that this needs: pg_stat_activity shows who; run it again when that session is done"
	case "25006":
		advice = "the server takes no changes: connect to the primary"
	}
	if advice == "" {
		return err
	}
	return &advised{cause: err, text: err.Error(), advice: advice}
}
