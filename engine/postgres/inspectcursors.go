// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/bothy/engine/problem"
)

// The codes of what is found about a table of restore.cursors.
const (
	codeCursorTable  RuleCode = "bad-cursor-table"
	codeCursorClosed RuleCode = "closed-cursor-table"
)

// CursorTable looks at a table of the user's own that a finalize would move: whether it is there, whether the column
// can hold a number of the log, whether the condition can be asked, and whether the owner or the role that adminURL
// connects as may change it.
func (i *Inspector) CursorTable(ctx context.Context, t CursorTable, adminURL string) ([]Finding, error) {
	admin := ""
	if config, err := pgx.ParseConfig(adminURL); err == nil {
		admin = config.User
	}
	bad := func(what, fix string, args ...any) []Finding {
		return []Finding{{Code: codeCursorTable, Severity: problem.Error, What: fmt.Sprintf(what, args...), Fix: fix}}
	}
	var found []Finding
	err := i.asked(ctx, i.status.Server.Role, func(tx pgx.Tx) error {
		var kind string
		var column *string
		var made, may bool
		err := tx.QueryRow(ctx, `SELECT c.relkind::text, (SELECT pg_catalog.format_type(a.atttypid, NULL) FROM pg_catalog.pg_attribute a
	WHERE a.attrelid = c.oid AND a.attname = $3 AND a.attnum > 0 AND NOT a.attisdropped),
	EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = $3 AND (a.attgenerated <> '' OR a.attidentity = 'a')),
	EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname IN ($4, $5)
		AND (NOT c.relrowsecurity OR r.rolbypassrls OR r.rolsuper OR NOT c.relforcerowsecurity AND pg_catalog.pg_has_role(r.oid, c.relowner, 'USAGE')) AND pg_catalog.has_schema_privilege(r.oid, n.oid, 'USAGE')
		AND pg_catalog.has_table_privilege(r.oid, c.oid, 'SELECT') AND pg_catalog.has_table_privilege(r.oid, c.oid, 'UPDATE'))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`,
			t.Schema, t.Table, t.Column, i.status.Owner, admin).Scan(&kind, &column, &made, &may)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			found = bad("there is no table %s", "correct the name, or remove the entry: a finalize fails on it", t.name())
			return nil
		case err != nil:
			return err
		case kind != "r" && kind != "p":
			found = bad("%s is no table", "name the table that holds the positions", t.name())
			return nil
		case column == nil:
			found = bad("the table %s has no column %s", "correct the name of the column", t.name(), t.Column)
			return nil
		case *column != "bigint" && *column != "numeric":
			found = bad("column %s of %s is %s, which cannot hold every number of the log", "make it a bigint", t.Column, t.name(), *column)
			return nil
		case made:
			found = bad("column %s of %s is made by the server, and no finalize can write it", "name the column that holds the position", t.Column, t.name())
			return nil
		case !may:
			found = []Finding{{
				Code: codeCursorClosed, Severity: problem.Warning,
				What: fmt.Sprintf("neither the owner %s nor the role of database.admin_url may change every row of %s, so a finalize would fail", i.status.Owner, t.name()),
				Fix:  fmt.Sprintf("have its owner run: GRANT SELECT, UPDATE ON %s TO %s (and GRANT USAGE ON SCHEMA %s TO %s); where row-level security hides rows, let database.admin_url connect as a role with BYPASSRLS", t.sql(), quote(i.status.Owner), quote(t.Schema), quote(i.status.Owner)),
			}}
		}
		if t.Where == "" {
			return nil
		}
		_, err = tx.Exec(ctx, `EXPLAIN SELECT FROM `+t.sql()+` WHERE `+t.condition())
		if code := sqlState(err); code != "" && code != codeInsufficientRight && !passing(code) {
			found = bad("the condition of %s cannot be asked: %s", "correct restore.cursors.where", t.name(), answer(err))
			return nil
		} else if code == codeInsufficientRight {
			return nil
		}
		return err
	})
	return found, failed("look at the table "+t.name(), err)
}

// answer is what the server said, without the words of the driver.
func answer(err error) string {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return said.Message
	}
	return err.Error()
}
