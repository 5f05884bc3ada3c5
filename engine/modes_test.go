// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"testing"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
)

// Case 35: a pooler in transaction mode forces another way to send statements. A round is one transaction on
// one connection, so it is right in all of them.
func TestRoundsInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			entries := []entry{
				{name: "fixed"},
				{name: "query", types: "[order.created]", recipients: `{query: "SELECT b.seq, r AS recipient FROM batch b CROSS JOIN unnest(ARRAY['alex', 'sam']) r"}`},
				{name: "audience", recipients: "{field: audience}"},
				{name: "typed", recipients: "{handler: both}"},
				{name: "copied", batch: 200},
			}
			db := database(t, entries...)
			cfg := configure(t, db, entries...)
			cfg.Database.URL += config.Secret("&default_query_exec_mode=" + mode)
			e := open(t, cfg)
			register(t, e, "both", func(ctx context.Context, tx *engine.HandlerTx, ev engine.Event) ([]string, error) {
				var n int64
				err := tx.QueryRow(ctx, `SELECT $1::bigint`, ev.Seq).Scan(&n)
				if err == nil && n != ev.Seq {
					err = fmt.Errorf("asked for %d, got %d", ev.Seq, n)
				}
				return []string{"sam", "alex"}, err
			})
			if err := e.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			db.Append(t, 150)
			for _, c := range entries {
				for range 15 {
					if o := round(t, e, c.name); o.Err != nil {
						t.Fatalf("round of %s ended %s: %v", c.name, o.End.Name, o.Err)
					}
				}
				wantExactlyOnce(t, db, c.name, 1, 150, "alex", "sam")
			}
			comparisons, err := e.Compare(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range comparisons {
				if !c.Sound() || c.Expected != 300 {
					t.Errorf("Compare says %+v, want 300 sound targets", c)
				}
			}
		})
	}
}
