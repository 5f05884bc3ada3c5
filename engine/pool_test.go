// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"testing"

	"example.com/bothy/engine"
)

// Case 29: a round needs one connection and never a second one while it has the first, so that consumers that outnumber
// the pool take turns instead of waiting for each other, while others ask for the state.
func TestPoolSmallerThanItsConsumers(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{1, 2} {
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			t.Parallel()
			query := `{query: "SELECT b.seq, p.person AS recipient FROM batch b, unnest('{alex,sam}'::text[]) AS p (person)"}`
			var entries []entry
			for i := range 6 {
				entries = append(entries, entry{name: fmt.Sprintf("push-%d", i), recipients: []string{"", query, "{handler: both}"}[i%3]})
			}
			db := database(t, entries...)
			cfg := configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}", entries...)
			cfg.Database.PoolMaxConns = connections
			e := open(t, cfg)
			register(t, e, "both", func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
				_, err := tx.Exec(ctx, `SELECT 1`)
				return []string{"alex", "sam"}, err
			})
			ensure(t, e)
			stop := runInBackground(t, e)
			for range 8 {
				db.Append(t, 5)
				if _, err := e.States(t.Context()); err != nil {
					t.Errorf("States: %v", err)
				}
			}
			for _, c := range entries {
				waitUntil(t, c.name+" reaches the head", func() bool { return cursorOf(t, db, c.name) == 40 })
			}
			stop()
			for _, c := range entries {
				wantExactlyOnce(t, db, c.name, 1, 40, "alex", "sam")
			}
		})
	}
}
