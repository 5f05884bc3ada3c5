// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// ScriptLimit is how long a script of the user may run. One that waits for something would hold a test for ever.
const ScriptLimit = 5 * time.Minute

// ScriptError is a script that cannot run to its end here, whatever the server would say.
type ScriptError struct {
	At        int // the place in the script, in characters from 0, or -1
	Line      int // of that place, from 1, or 0
	What, Fix string
}

func (e *ScriptError) Error() string {
	where := ""
	if e.Line > 0 {
		where = fmt.Sprintf("line %d: ", e.Line)
	}
	return where + e.What + "\nfix: " + e.Fix
}

// RunScript runs SQL of the user on the database that url connects to. It is one transaction unless it says
// otherwise.
func RunScript(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return Explain(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return runScript(ctx, conn, sql)
}

// runScript sends a text without arguments, so that several statements may stand in it.
func runScript(ctx context.Context, conn *pgx.Conn, sql string) error {
	if flaw := scriptFlaw(sql); flaw != nil {
		return flaw
	}
	limited, cancel := context.WithTimeout(ctx, ScriptLimit)
	defer cancel()
	_, err := conn.Exec(limited, sql, pgx.QueryExecModeSimpleProtocol)
	switch {
	case err != nil && errors.Is(limited.Err(), context.DeadlineExceeded):
		return &ScriptError{At: -1, What: "it did not end in time: a statement waits for something, or is too slow", Fix: "leave out what waits, and rows that no test needs"}
	case err != nil:
		return err
	case conn.PgConn().TxStatus() != 'I':
		return &ScriptError{At: -1, What: "it left a transaction open, so nothing of it would stay", Fix: "write COMMIT at its end, or leave BEGIN out"}
	}
	return nil
}

// scriptToken is what cannot hold a statement's end: blanks, a comment, a text, a name, or the opening of a
// text between dollars.
var scriptToken = regexp.MustCompile(`(?s)^(?:\s+|--[^\n]*|[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|[\p{L}_][\p{L}\p{N}_$]*|\$(?:[\p{L}_][\p{L}\p{N}_]*)?\$)`)

// scriptFlaw finds what only psql understands: its own commands, and COPY, whose data would have to come behind
// the statement. The server waits for that data for ever.
func scriptFlaw(sql string) *ScriptError {
	var words []string // of the statement, in upper case
	begin := 0         // of the statement
	for pos := 0; pos < len(sql); {
		rest := sql[pos:]
		token := scriptToken.FindString(rest)
		switch {
		case strings.HasPrefix(rest, "/*"):
			pos += commentLength(rest)
			continue
		case rest[0] == '\\':
			name := strings.Fields(rest)[0]
			return scriptErrorAt(sql, pos, name+" is a command of psql, and psql does not run this", "leave it out: SQL only")
		case rest[0] == ';':
			words = nil
			pos++
			continue
		case token == "":
			words = append(words, rest[:1])
			pos++
			continue
		case strings.HasPrefix(token, "$"):
			pos += len(token)
			end := strings.Index(sql[pos:], token)
			if end < 0 {
				return nil // the server says so, with its place
			}
			pos += end + len(token)
			continue
		case strings.TrimSpace(token) == "" || strings.HasPrefix(token, "--"):
			pos += len(token)
			continue
		}
		if len(words) == 0 {
			begin = pos
		}
		words = append(words, strings.ToUpper(token))
		if n := len(words); words[0] == "COPY" && n > 2 && words[n-2] == "FROM" && words[n-1] == "STDIN" {
			return scriptErrorAt(sql, begin, "COPY ... FROM STDIN needs data that cannot come here", "use INSERT; pg_dump writes it with --inserts")
		}
		pos += len(token)
	}
	return nil
}

// commentLength is that of the block comment which begins a text. They nest.
func commentLength(text string) int {
	depth := 0
	for i := 0; i+1 < len(text); i++ {
		switch text[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

func scriptErrorAt(sql string, pos int, what, fix string) *ScriptError {
	return &ScriptError{At: utf8.RuneCountInString(sql[:pos]), Line: 1 + strings.Count(sql[:pos], "\n"), What: what, Fix: fix}
}
