// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// asker is who asks about a rule. Neither outlives the transaction in which a refusal is explained.
type asker struct{ role, path string }

func readAsker(ctx context.Context, tx pgx.Tx) (a asker, err error) {
	err = tx.QueryRow(ctx, `SELECT current_user::text, current_setting('search_path')`).Scan(&a.role, &a.path)
	return a, failed("ask who looks at a recipient rule", err)
}

// granting adds to a right that is missing who lacks it, and the statement that gives it. The statement before
// has failed, so the transaction is begun anew; the caller rolls it back next.
func granting(ctx context.Context, tx pgx.Tx, a asker, rule string, err error) error {
	wrong, ok := errors.AsType[*RuleError](err)
	if !ok || wrong.Code != RuleUnreadable {
		return err
	}
	wrong.What = fmt.Sprintf("reads or calls what the role %s may not", a.role)
	wrong.Fix = fmt.Sprintf("give the role %s the right that the server names, or read something that it may read", a.role)
	if _, failure := tx.Conn().Exec(ctx, `ROLLBACK AND CHAIN`); failure != nil {
		return err
	}
	if _, failure := tx.Exec(ctx, `SELECT pg_catalog.set_config('search_path', $1, true)`, a.path); failure != nil {
		return err
	}
	lacking, failure := lackingRights(ctx, tx, a.role, rule, refusedName(wrong.cause))
	if failure != nil || len(lacking) == 0 {
		return err
	}
	statements := make([]string, len(lacking))
	for i, r := range lacking {
		statements[i] = r.sql()
	}
	wrong.Fix = "run: " + strings.Join(statements, "; ")
	return wrong
}

// refusedName is the object that a refusal names. The server writes it last, without its schema.
func refusedName(err error) string {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return ""
	}
	return unquoted(answer.Message[strings.LastIndexByte(answer.Message, ' ')+1:])
}

// lackingRights are the rights that a role lacks on what a rule names, as far as its text shows it. What only
// stands behind a view or inside a function is found by the name that the server refused, when just one
// object has it. What is the system's own is left out: to grant that is no advice to give.
func lackingRights(ctx context.Context, conn Querier, role, rule, refused string) ([]right, error) {
	var schemas, names []string
	var called []bool
	for _, w := range words(rule) {
		schemas, names, called = append(schemas, w.schema), append(names, w.name), append(called, w.called)
	}
	rows, err := conn.Query(ctx, `WITH word AS (SELECT * FROM unnest($2::text[], $3::text[], $4::bool[]) w (schema, name, called)),
object AS (
	SELECT 1 AS rank, 'SCHEMA' AS kind, '"' || replace(n.nspname, '"', '""') || '"' AS sql, 'USAGE' AS verb, true AS written
	FROM pg_catalog.pg_namespace n WHERE n.nspname IN (SELECT schema FROM word) AND NOT pg_catalog.has_schema_privilege($1::name, n.oid, 'USAGE')
	UNION
	SELECT 2, 'TABLE', '"' || replace(n.nspname, '"', '""') || '"."' || replace(c.relname, '"', '""') || '"', 'SELECT', EXISTS (SELECT FROM word w WHERE NOT w.called AND w.name = c.relname
		AND CASE w.schema WHEN '' THEN c.relname = $5 AND pg_catalog.pg_table_is_visible(c.oid) ELSE n.nspname = w.schema END)
	FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND (c.relname = $5 OR c.relname IN (SELECT name FROM word))
	AND NOT pg_catalog.has_table_privilege($1::name, c.oid, 'SELECT')
	AND (c.relname = $5 OR NOT pg_catalog.has_any_column_privilege($1::name, c.oid, 'SELECT'))
	UNION
	SELECT 3, 'FUNCTION', '"' || replace(n.nspname, '"', '""') || '"."' || replace(p.proname, '"', '""') || '"(' || pg_catalog.pg_get_function_identity_arguments(p.oid) || ')', 'EXECUTE',
		EXISTS (SELECT FROM word w WHERE w.called AND w.name = p.proname
		AND CASE w.schema WHEN '' THEN pg_catalog.pg_function_is_visible(p.oid) ELSE n.nspname = w.schema END)
	FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
	WHERE n.nspname !~ '^pg_' AND (p.proname = $5 OR p.proname IN (SELECT name FROM word WHERE called)) AND NOT pg_catalog.has_function_privilege($1::name, p.oid, 'EXECUTE')
)
SELECT kind, sql, verb, written FROM object ORDER BY rank, sql`,
		role, schemas, names, called, refused)
	if err != nil {
		return nil, failed("ask which rights the role "+role+" lacks", err)
	}
	var written, behind []right
	r, shown := right{role: role}, false
	_, err = pgx.ForEachRow(rows, []any{&r.kind, &r.object, &r.verbs, &shown}, func() error {
		if shown {
			written = append(written, r)
		} else {
			behind = append(behind, r)
		}
		return nil
	})
	if len(written) == 0 && len(behind) == 1 {
		written = behind
	}
	return written, failed("ask which rights the role "+role+" lacks", err)
}
