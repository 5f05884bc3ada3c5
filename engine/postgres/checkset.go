// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// nameCheck is the constraint that holds the names a cursor may have.
const nameCheck = "event_consumer_cursors_name_check"

// extendNames adds the declared names to those that the database knows. It never takes one away: an older
// binary that still runs, or a cursor that still has a row, may need it. While there is a Doubt, none is added.
func (m *migrator) extendNames(ctx context.Context) error {
	known, err := readNames(ctx, m.conn, m.o.Schema)
	if err != nil || len(newNames(known, m.o.ConsumerNames)) == 0 {
		return err
	}
	if !m.o.NewConsumers {
		if m.report.Doubt, err = m.doubt(ctx); err != nil || m.report.Doubt != nil {
			return err
		}
	}
	err = m.asOwner(ctx, "add the names of the consumers", func(tx pgx.Tx) error {
		m.report.Names, err = addNames(ctx, tx, m.o.Schema, m.o.ConsumerNames)
		return err
	})
	if len(m.report.Names) > 0 {
		m.logf("the database now knows the consumers %s", strings.Join(m.report.Names, ", "))
	}
	return err
}

// AllowNames adds names to those that a cursor may have, as the owner of the schema, and answers which
// were new. It is what Migrate does with ConsumerNames.
func AllowNames(ctx context.Context, ownerURL, schema string, names []string) (added []string, err error) {
	conn, err := connectAdmin(ctx, ownerURL, 0, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is in flight
	known, err := readNames(ctx, conn, schema)
	if err != nil || len(newNames(known, names)) == 0 {
		return nil, err
	}
	err = retried(ctx, func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			added, err = addNames(ctx, tx, schema, names)
			return err
		})
	})
	return added, failed("add the names of the consumers", err)
}

func addNames(ctx context.Context, tx pgx.Tx, schema string, declared []string) (added []string, err error) {
	// Held for the blink of the change, and not waited for long: rounds queue up behind a waiter.
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '500ms'`); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `LOCK TABLE `+quote(schema)+`.event_consumer_cursors IN ACCESS EXCLUSIVE MODE`); err != nil {
		return nil, err
	}
	// Under the lock: names with a row stay allowed, however they got there.
	known, err := readNames(ctx, tx, schema)
	if err != nil {
		return nil, err
	}
	rows, err := cursorNames(ctx, tx, schema)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, namesSQL(schema, sortedUnion(known, sortedUnion(rows, declared))))
	return newNames(known, declared), err
}

func newNames(known, declared []string) []string {
	var added []string
	for _, name := range sortedUnion(declared, nil) {
		if !slices.Contains(known, name) {
			added = append(added, name)
		}
	}
	return added
}

// namesSQL replaces the constraint by one that allows exactly these names.
func namesSQL(schema string, names []string) string {
	return fmt.Sprintf(`ALTER TABLE %s.event_consumer_cursors DROP CONSTRAINT IF EXISTS %s,
	ADD CONSTRAINT %s CHECK (name = ANY (%s))`, quote(schema), nameCheck, nameCheck, literals(names))
}

func cursorNames(ctx context.Context, conn Querier, schema string) ([]string, error) {
	rows, err := conn.Query(ctx, `SELECT name FROM `+quote(schema)+`.event_consumer_cursors ORDER BY name`)
	if err != nil {
		return nil, failed("read the cursors", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, failed("read the cursors", err)
}

// readNames reads the names that the constraint allows.
func readNames(ctx context.Context, conn Querier, schema string) ([]string, error) {
	var definition string
	err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_get_constraintdef(k.oid) FROM pg_catalog.pg_constraint k
JOIN pg_catalog.pg_class c ON c.oid = k.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = 'event_consumer_cursors' AND k.conname = $2`, schema, nameCheck).Scan(&definition)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil // somebody dropped it: it comes back with the names that have rows
	}
	if err != nil {
		return nil, failed("read the names of the consumers", err)
	}
	return literalsIn(definition), nil
}

// literalsIn are the SQL text literals of an expression as PostgreSQL prints it.
func literalsIn(expression string) []string {
	var names []string
	for {
		start := strings.IndexByte(expression, '\'')
		if start < 0 {
			slices.Sort(names)
			return slices.Compact(names)
		}
		// A text with a backslash is printed in the form E'..', with each backslash doubled.
		escaped := start > 0 && expression[start-1] == 'E'
		text, rest := readLiteral(expression[start+1:])
		if escaped {
			text = strings.ReplaceAll(text, `\\`, `\`)
		}
		names = append(names, text)
		expression = rest
	}
}

// readLiteral reads up to the quote that closes a literal; a doubled quote stands for one.
func readLiteral(s string) (text, rest string) {
	var b strings.Builder
	for {
		end := strings.IndexByte(s, '\'')
		if end < 0 {
			return b.String() + s, ""
		}
		b.WriteString(s[:end])
		s = s[end+1:]
		if !strings.HasPrefix(s, "'") {
			return b.String(), s
		}
		b.WriteByte('\'')
		s = s[1:]
	}
}
