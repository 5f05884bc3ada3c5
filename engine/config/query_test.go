// SPDX-License-Identifier: Apache-2.0

package config

import "testing"

func TestTrimQuery(t *testing.T) {
	for text, want := range map[string]string{
		"SELECT 1 FROM batch":                           "SELECT 1 FROM batch",
		"  SELECT 1 FROM batch ; \n":                    "SELECT 1 FROM batch",
		"SELECT 1 FROM batch -- every; event (":         "SELECT 1 FROM batch",
		"SELECT 1 FROM batch; -- done":                  "SELECT 1 FROM batch",
		"SELECT 1 FROM batch /* a /* b */ ' */":         "SELECT 1 FROM batch",
		"-- who\nSELECT 1 FROM batch":                   "-- who\nSELECT 1 FROM batch",
		`select 1 from "batch"`:                         `select 1 from "batch"`,
		"SELECT ';' FROM batch b WHERE x = '--'":        "SELECT ';' FROM batch b WHERE x = '--'",
		`SELECT E'\';' FROM BATCH`:                      `SELECT E'\';' FROM BATCH`,
		"SELECT $a$ ; ' $b$ $a$ FROM batch":             "SELECT $a$ ; ' $b$ $a$ FROM batch",
		"WITH w AS (SELECT 1) SELECT 1 FROM batch, w":   "WITH w AS (SELECT 1) SELECT 1 FROM batch, w",
		"(SELECT 1 FROM batch) UNION (SELECT 2 FROM t)": "(SELECT 1 FROM batch) UNION (SELECT 2 FROM t)",
		"SELECT 'it''s' FROM batch":                     "SELECT 'it''s' FROM batch",
		"SELECT a$1 FROM batch":                         "SELECT a$1 FROM batch",
	} {
		if got, why, _ := trimQuery(text); got != want || why != "" {
			t.Errorf("%q: got %q (%s), want %q", text, got, why, want)
		}
	}
	for _, text := range []string{
		"", ";", "-- x", "SELECT 1", "SELECT 1 FROM batches", "SELECT 'batch'", "SELECT $$batch$$", "SELECT 1 FROM batch; SELECT 2", "SELECT 1 FROM batch;;x",
		"SELECT (1 FROM batch", "SELECT 1) FROM batch", ") batch (", "UPDATE batch SET x = 1", "SELECT $1 FROM batch", "SELECT ' FROM batch",
		`SELECT " FROM batch`, "SELECT $x$ FROM batch $X$", "SELECT 1 FROM batch /* /* */", `SELECT E'\' FROM batch`,
	} {
		if got, why, _ := trimQuery(text); why == "" {
			t.Errorf("%q: accepted as %q", text, got)
		}
	}
}
