// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// sequence is how far a sequence has counted. No rollback takes a number back.
type sequence struct {
	name   string // as SQL writes it
	last   int64
	called bool // last was given out
}

// sequencesOf are the sequences outside the schema of the engine.
func sequencesOf(ctx context.Context, db Querier, schema string) ([]sequence, error) {
	rows, err := db.Query(ctx, `SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'S' AND n.nspname <> $1 AND n.nspname !~ '^pg_' ORDER BY c.oid`, schema)
	if err != nil {
		return nil, failed("list the sequences", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) == 0 {
		return nil, failed("list the sequences", err)
	}
	reads := make([]string, len(names))
	for i, name := range names {
		reads[i] = fmt.Sprintf(`SELECT %s, last_value, is_called FROM %s`, literal(name), name)
	}
	if rows, err = db.Query(ctx, strings.Join(reads, " UNION ALL ")); err != nil {
		return nil, failed("read the sequences", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s sequence, err error) {
		err = row.Scan(&s.name, &s.last, &s.called)
		return s, err
	})
	return all, failed("read the sequences", err)
}

// resetSequences sets those back that have counted on.
func resetSequences(ctx context.Context, db Querier, to []sequence) error {
	if len(to) == 0 {
		return nil
	}
	sets := make([]string, len(to))
	for i, s := range to {
		sets[i] = fmt.Sprintf(`SELECT pg_catalog.setval(%s, %d, %t) FROM %s WHERE last_value <> %[2]d OR is_called <> %[3]t`, literal(s.name), s.last, s.called, s.name)
	}
	rows, err := db.Query(ctx, strings.Join(sets, " UNION ALL "))
	if err != nil {
		return failed("reset the sequences", err)
	}
	rows.Close() // runs it to its end
	return failed("reset the sequences", rows.Err())
}
