// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// What psql alone understands is found where it stands, and what only looks like it is run.
func TestRunScript(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.Empty())
	for name, tt := range map[string]struct {
		sql  string
		line int // of a ScriptError, 0 for one without a place, -1 for no error
	}{
		"copy":               {"SELECT 1;\n/* /* nested */ ; */ copy a (b)\nfrom\nStdin with (format csv);\n", 2},
		"copy at the begin":  {"COPY a FROM STDIN", 1},
		"meta":               {"SELECT 1\n  \\gexec", 2},
		"restrict":           {"\\restrict abc\n", 1},
		"open":               {"BEGIN; SELECT 1", 0},
		"in a text":          {`SELECT 'COPY a FROM STDIN', 'it''s; COPY a FROM STDIN', 'c:\';`, -1},
		"in an escaped text": {`SELECT E'\';COPY a FROM STDIN;\\';`, -1},
		"in a body":          {"DO $x$ BEGIN PERFORM 'COPY a FROM STDIN; $$ \\d'; END $x$; SELECT $$\\d$$;", -1},
		"in a comment":       {"-- COPY a FROM STDIN; \\d\n/* \\d /* ; */ COPY a FROM STDIN */ SELECT 1", -1},
		"a name":             {`SELECT 1 AS "COPY FROM STDIN \d"; SELECT 1 AS copy`, -1},
		"copy to":            {"COPY (SELECT 1) TO STDOUT; SELECT 1", -1},
		"its own end":        {"BEGIN; SELECT 1; COMMIT; BEGIN; ROLLBACK", -1},
		"nothing":            {" -- nothing", -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := postgres.RunScript(t.Context(), db.AdminURL, tt.sql)
			flaw, ok := errors.AsType[*postgres.ScriptError](err)
			if tt.line < 0 && err != nil || tt.line >= 0 && (!ok || flaw.Line != tt.line) {
				t.Errorf("RunScript(%q): got %v, want line %d (-1 is no error)", tt.sql, err, tt.line)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := postgres.RunScript(ctx, db.AdminURL, "SELECT pg_sleep(60)"); err == nil {
		t.Error("a script that outlives its context: got no error")
	}
}
