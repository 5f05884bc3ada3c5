// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Backup is the rows of a few schemas as one moment had them, in memory: what a dump of data holds. It is for small
// databases of the engine's own, where no pg_dump need be at hand.
type Backup struct {
	tables []savedTable
	counts []savedSequence
}

type savedTable struct {
	table, columns string // as SQL
	rows           []byte
	empty          bool
}

type savedSequence struct {
	sequence string // as SQL
	last     int64
}

// TakeBackup reads every table and sequence of the schemas in one snapshot.
func TakeBackup(ctx context.Context, url string, schemas ...string) (b Backup, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return b, unreached(err)
	}
	defer closeSoon(ctx, conn)
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT format('%I.%I', n.nspname, c.relname), (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
	FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY ($1) AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1`, schemas)
		if err != nil {
			return err
		}
		var one savedTable
		if _, err := pgx.ForEachRow(rows, []any{&one.table, &one.columns}, func() error { b.tables = append(b.tables, one); return nil }); err != nil {
			return err
		}
		for i := range b.tables {
			t := &b.tables[i]
			var held bytes.Buffer
			tag, err := conn.PgConn().CopyTo(ctx, &held, fmt.Sprintf(`COPY (SELECT %s FROM %s) TO STDOUT`, t.columns, t.table))
			if err != nil {
				return err
			}
			t.rows, t.empty = held.Bytes(), tag.RowsAffected() == 0
		}
		rows, err = tx.Query(ctx, `SELECT format('%I.%I', schemaname, sequencename), last_value FROM pg_catalog.pg_sequences WHERE schemaname = ANY ($1) AND last_value IS NOT NULL`, schemas)
		if err != nil {
			return err
		}
		var count savedSequence
		_, err = pgx.ForEachRow(rows, []any{&count.sequence, &count.last}, func() error { b.counts = append(b.counts, count); return nil })
		return err
	})
	return b, failed("take a backup", err)
}

// Load puts the rows into a database that has the same tables, in place of what these hold. Triggers do not fire, as
// in any restore of data.
func (b Backup) Load(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return unreached(err)
	}
	defer closeSoon(ctx, conn)
	return failed("load a backup", pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL session_replication_role = replica`); err != nil {
			return err
		}
		for _, t := range b.tables {
			// What is empty is left alone: the audit takes no DELETE, not even one of nothing.
			var held bool
			if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+t.table+`)`).Scan(&held); err != nil {
				return err
			}
			if held {
				if _, err := tx.Exec(ctx, `DELETE FROM `+t.table); err != nil {
					return err
				}
			}
			if t.empty {
				continue
			}
			if _, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(t.rows), fmt.Sprintf(`COPY %s (%s) FROM STDIN`, t.table, t.columns)); err != nil {
				return fmt.Errorf("%s: %w", t.table, err)
			}
		}
		for _, s := range b.counts {
			if _, err := tx.Exec(ctx, `SELECT setval($1::text::regclass, $2)`, s.sequence, s.last); err != nil {
				return err
			}
		}
		return nil
	}))
}
