// SPDX-License-Identifier: Apache-2.0

package consumer

import "example.com/bothy/engine/machine"

// promises are what every round table keeps, whatever else it does. The file states them too, so that who
// reads the table reads what it holds to; it cannot take one away.
func promises() []machine.Promise {
	return []machine.Promise{
		{
			Transaction: machine.Commit,
			Passes:      []string{"lock_cursor.held", "read_events.some", "plan_round", "decide_recipients", "insert_jobs", "advance_cursor"},
			InOrder:     true,
		},
		{Transaction: machine.Commit, NeverPasses: []string{"plan_round.hole"}},
		{End: "processed", Transaction: machine.Commit, Passes: []string{"plan_round.contiguous"}, NeverPassesState: []string{"decide_rest"}, Next: machine.AgainWhenFull, Edge: machine.Settle},
		{End: "lost", Transaction: machine.Commit, Passes: []string{"plan_round.expired"}, PassesState: []string{"decide_rest"}, Next: machine.AgainWhenFull, Edge: machine.Settle, Log: machine.LevelError},
		{End: "idle", Passes: []string{"lock_cursor.held", "read_events.none"}, Next: machine.Wait, Edge: machine.Settle},
		{End: "locked", Passes: []string{"lock_cursor.taken"}, Next: machine.Wait, Edge: machine.Unchanged},
		{
			End:         "gap",
			Passes:      []string{"lock_cursor.held", "read_events"},
			NeverPasses: []string{"read_events.none", "read_events.ahead", "read_events.unfinalized", "insert_jobs", "advance_cursor"},
			Next:        machine.Wait,
			Failure:     "consumer_gap",
		},
		{End: "ahead", Passes: []string{"read_events.ahead"}, NeverPasses: []string{"insert_jobs", "advance_cursor"}, Next: machine.Wait, Failure: "consumer_ahead"},
		{
			End: "unfinalized", Passes: []string{"read_events.unfinalized"}, NeverPasses: []string{"insert_jobs", "advance_cursor"},
			Next: machine.Wait, Edge: machine.Unchanged,
		},
		{End: "stopped", Next: machine.Stop, Edge: machine.Unchanged},
		{
			End:         "failed",
			NeverPasses: []string{"read_events.vanished", "read_events.ahead", "read_events.unfinalized", "plan_round.hole"},
			Next:        machine.Wait, Failure: "error",
		},
	}
}
