// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

func TestEventConsumerCursorsTable(t *testing.T) {
	t.Parallel()
	declared := []string{"push", "web-hooks", `odd "one's"`, `back\slash`}
	db := enginetest.New(t, enginetest.WithConsumers(declared...))
	owner := db.Owner(t)
	rows, err := owner.Query(t.Context(), `SELECT concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'NOT NULL' END, pg_get_expr(d.adbin, d.adrelid))
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = 'bothy.event_consumer_cursors'::regclass AND a.attnum > 0 ORDER BY a.attnum`)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"name text NOT NULL", "last_seq bigint NOT NULL 0", "updated_at timestamp with time zone NOT NULL now()"}
	if diff := cmp.Diff(want, columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	var key string
	err = owner.QueryRow(t.Context(), `SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'bothy.event_consumer_cursors'::regclass AND contype = 'p'`).Scan(&key)
	if err != nil || key != "PRIMARY KEY (name)" {
		t.Errorf("primary key: got %q, %v, want PRIMARY KEY (name)", key, err)
	}

	app := enginetest.Connect(t, db.AppURL)
	for _, name := range declared {
		if _, err := app.Exec(t.Context(), `INSERT INTO bothy.event_consumer_cursors (name) VALUES ($1)`, name); err != nil {
			t.Errorf("insert the declared name %q: %v", name, err)
		}
	}
	for _, name := range []string{"", "Push", "other", "push "} {
		_, err := app.Exec(t.Context(), `INSERT INTO bothy.event_consumer_cursors (name) VALUES ($1)`, name)
		wantCode(t, err, "23514", "event_consumer_cursors_name_check")
	}
	must(t, app, `UPDATE bothy.event_consumer_cursors SET last_seq = 1`)
	_, err = app.Exec(t.Context(), `DELETE FROM bothy.event_consumer_cursors`)
	wantCode(t, err, "42501", "permission denied")

	// What was printed is read again: names survive one more extension as they were.
	if _, err := postgres.AllowNames(t.Context(), db.OwnerURL, "bothy", []string{"later"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range declared {
		if added, err := postgres.AllowNames(t.Context(), db.OwnerURL, "bothy", []string{name}); err != nil || len(added) > 0 {
			t.Errorf("the name %q after another was added: got new %q, %v, want known", name, added, err)
		}
	}
}

func TestProducersMayOnlyExecute(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	db.Append(t, 1)
	producer := enginetest.Connect(t, db.ProducerURL)
	must(t, producer, appendOne, "a")
	must(t, producer, `SELECT bothy.append_events('[{"type": "a"}]')`)
	for _, table := range []string{"event_log", "event_seq", "event_stage", "event_consumer_cursors", "instance", "schema_migration", "event_log_p1"} {
		for _, statement := range []string{"SELECT * FROM bothy.%s", "INSERT INTO bothy.%s DEFAULT VALUES", "DELETE FROM bothy.%s", "TRUNCATE bothy.%s"} {
			sql := fmt.Sprintf(statement, table)
			_, err := producer.Exec(t.Context(), sql)
			if !hasCode(err, "42501") {
				t.Errorf("%s: got %v, want SQLSTATE 42501", sql, err)
			}
		}
	}
	for _, call := range []string{"make_partitions(10, 1)", "advance_cursor('a', 0, 1)", "number_events()", "event_type_problem('a')", "event_problem('{}')", "refuse_in_round()", "event_log_partitions()"} {
		_, err := producer.Exec(t.Context(), "SELECT bothy."+call)
		if !hasCode(err, "42501") {
			t.Errorf("%s: got %v, want SQLSTATE 42501", call, err)
		}
	}
	_, err := producer.Exec(t.Context(), `CREATE TABLE bothy.mine ()`)
	wantCode(t, err, "42501", "permission denied for schema")
}

func TestAppMayNotWriteTheLog(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	app := enginetest.Connect(t, db.AppURL)
	for _, sql := range []string{
		`INSERT INTO bothy.event_log (seq, id, type) VALUES (1, gen_random_uuid(), 'a')`, `UPDATE bothy.event_log SET type = 'a'`,
		`DELETE FROM bothy.event_log`, `UPDATE bothy.event_seq SET seq = 5`, `DELETE FROM bothy.event_stage`, `UPDATE bothy.instance SET environment = 'x'`,
		`SELECT bothy.event_type_problem('a')`, `DROP TABLE bothy.event_log`,
	} {
		_, err := app.Exec(t.Context(), sql)
		if !hasCode(err, "42501") {
			t.Errorf("%s: got %v, want SQLSTATE 42501", sql, err)
		}
	}
	for _, sql := range []string{
		`SELECT * FROM bothy.event_log`, `SELECT * FROM bothy.event_seq`, `SELECT * FROM bothy.instance`, `SELECT * FROM bothy.schema_migration`,
		`SELECT bothy.make_partitions(1000000, 1)`, `SELECT * FROM public.river_migration`,
		`INSERT INTO public.river_job (kind, args, max_attempts) VALUES ('k', '{}', 1) RETURNING id`,
	} {
		must(t, app, sql)
	}
}

// The functions run with the owner's rights, so what the caller's session puts in the way must not matter.
func TestFunctionsIgnoreTheSearchPath(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	producer := enginetest.Connect(t, db.ProducerURL)
	must(t, producer, `CREATE TEMP TABLE event_stage (LIKE pg_catalog.pg_class)`)
	must(t, producer, `CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''epoch''::timestamptz'`)
	must(t, producer, `SET search_path = pg_temp, pg_catalog`)
	must(t, producer, appendOne, "a")
	wantTypes(t, db, "a")
	rows, err := db.Owner(t).Query(t.Context(), `SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'bothy'::regnamespace AND (proconfig IS NULL OR NOT 'search_path=pg_catalog, pg_temp' = ANY (proconfig))`)
	if err != nil {
		t.Fatal(err)
	}
	if open, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(open) > 0 {
		t.Errorf("functions without a pinned search_path: got %q, %v, want none", open, err)
	}
}

func TestAdvanceCursor(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("push"))
	app := enginetest.Connect(t, db.AppURL)
	must(t, app, `INSERT INTO bothy.event_consumer_cursors (name, last_seq, updated_at) VALUES ('push', 5, 'epoch')`)
	// advance moves a cursor inside the round of a consumer.
	advance := func(round, arguments string) error {
		t.Helper()
		tx := begin(t, app, pgx.TxOptions{})
		defer func() { _ = tx.Rollback(t.Context()) }() // after a commit it does nothing
		must(t, tx, `SELECT set_config('bothy.in_round', $1, true)`, round)
		if _, err := tx.Exec(t.Context(), `SELECT bothy.advance_cursor(`+arguments+`)`); err != nil {
			return err
		}
		return tx.Commit(t.Context())
	}
	for _, test := range []struct{ round, arguments, want string }{
		{"push", `'push', 4, 6`, "did not move from"},
		{"push", `'push', 5, 5`, "did not move from"},
		{"push", `'push', 5, 4`, "did not move from"},
		{"other", `'other', 5, 6`, "did not move from"},
		{"push", `'push', NULL, 6`, "did not move from"},
		{"push", `'push', 5, NULL`, "did not move from"},
		{"push", `NULL, 5, 6`, ""},
		{"other", `'push', 5, 6`, "is not that of its round"},
		{"", `'push', 5, 6`, "is not that of its round"},
	} {
		wantCode(t, advance(test.round, test.arguments), postgres.CodeCursorMoved, test.want)
	}
	if err := advance("push", `'push', 5, 9`); err != nil {
		t.Errorf("advance from 5 to 9: %v", err)
	}
	var seq int64
	var fresh bool
	if err := app.QueryRow(t.Context(), `SELECT last_seq, updated_at > now() - interval '5 min' FROM bothy.event_consumer_cursors`).Scan(&seq, &fresh); err != nil || seq != 9 || !fresh {
		t.Errorf("cursor: got %d, fresh %t, %v, want 9, true", seq, fresh, err)
	}
}
