// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"strings"
	"testing"
)

// A round that finds nothing says which row is gone: its cursor, or one of the two that every consumer needs.
func TestRoundNamesTheMissingRow(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ sql, want string }{
		"cursor":   {`DELETE FROM bothy.event_consumer_cursors`, "the cursor row does not exist"},
		"counter":  {`DELETE FROM bothy.event_seq`, `event_seq is empty: its one row is the counter of the event log`},
		"identity": {`DELETE FROM bothy.instance`, `instance is empty: its one row is the identity of the installation`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, db := prepared(t, entry{name: "push"})
			db.Append(t, 1)
			db.Exec(t, tt.sql)
			if o := wantRound(t, e, "push", "failed"); o.Err == nil || !strings.Contains(o.Err.Error(), tt.want) {
				t.Errorf("after %s: %v, want %q in it", tt.sql, o.Err, tt.want)
			}
		})
	}
}
