// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Failure is a database error with what it means to a runner.
type Failure struct {
	doing string
	cause error
}

// failed wraps cause, naming what was being done. A nil cause stays nil.
func failed(doing string, cause error) error {
	if cause == nil {
		return nil
	}
	return &Failure{doing: doing, cause: cause}
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %v", f.doing, f.cause) }

// Unwrap is the error of the database or the driver.
func (f *Failure) Unwrap() error { return f.cause }

// ErrorType is a value from a closed set for logs and metrics: the SQLSTATE when the server answered with one,
// timeout when it did not answer in time, connection when there was none or it broke, else error.
func (f *Failure) ErrorType() string {
	if code := sqlState(f.cause); code != "" {
		return code
	}
	if _, silent := errors.AsType[*SilentError](f.cause); silent || errors.Is(f.cause, context.DeadlineExceeded) {
		return "timeout"
	}
	if disconnected(f.cause) {
		return "connection"
	}
	if typed, ok := errors.AsType[interface {
		error
		ErrorType() string
	}](f.cause); ok {
		return typed.ErrorType()
	}
	return "error"
}

// errBroken marks an error whose own words do not say that the connection is gone.
var errBroken = errors.New("the connection broke")

// disconnected reports whether an error is one of reaching the server rather than of what was asked.
func disconnected(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, errBroken} {
		if errors.Is(err, end) {
			return true
		}
	}
	return pgconn.SafeToRetry(err) // the driver says so of a connection that was closed before
}

// Transient reports whether the same round, tried again at once, is likely to pass: the server chose it
// as the victim of a deadlock, or a lock was not free in time.
func (f *Failure) Transient() bool {
	code := sqlState(f.cause)
	return code == codeDeadlock || code == codeLockTimeout
}

// TooLarge reports whether a round over fewer events may pass where this one did not: a statement took longer,
// or more memory or disk, than the server gives it.
func (f *Failure) TooLarge() bool {
	switch sqlState(f.cause) {
	case codeCancelled, codeOutOfMemory, codeLimitExceeded:
		return true
	default:
		return false
	}
}

// The conditions that the engine tells apart by their SQLSTATE.
const (
	codeDeadlock          = "40P01"
	codeLockTimeout       = "55P03"
	codeCheckViolation    = "23514"
	codeReadOnly          = "25006"
	codeInsufficientRight = "42501"
	codeCancelled         = "57014" // statement_timeout, among others
	codeOutOfMemory       = "53200"
	codeLimitExceeded     = "53400" // temp_file_limit

	codeTooManyConnections = "53300"
)

// passing reports whether another moment may bring another answer: a limit, a lock, a busy server, or one that
// stops or breaks the connection.
func passing(code string) bool {
	switch code {
	case codeDeadlock, codeLockTimeout, codeCancelled, "40001":
		return true
	default:
		return slices.ContainsFunc([]string{"08", "53", "57P", "58", "XX"}, func(class string) bool { return strings.HasPrefix(code, class) })
	}
}

// sqlState is the SQLSTATE of an error, or "" when it did not come from the server.
func sqlState(err error) string {
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		return answer.Code
	}
	return ""
}
