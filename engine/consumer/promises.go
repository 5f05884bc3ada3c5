// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"slices"

	"example.com/bothy/engine/machine"
)

// What breaking a promise costs the user.
const (
	costJobs     = "jobs would be lost or doubled"
	costHole     = "the cursor would pass numbers that are missing in the log, and the jobs of these events would be lost"
	costQuiet    = "a loss to retention would pass as ordinary work, or a backlog would wait for the poll"
	costLoss     = "events that retention removed would be passed without anybody being told, or others be told as lost"
	costFalse    = "the end's name would tell operators something that did not happen"
	costDamage   = "damage to the log would be passed over, or be told as something that passes by itself"
	costRecovery = "a failing consumer would be told as recovered although nothing was tried"
	costStop     = "a stopped engine would run further rounds, or a shutdown would be told as an incident"
	costAside    = "an event would be set aside together with its jobs, or stay where it is, or be set aside without being read or refused"
	costTold     = "an event would be set aside without anybody being told, or a backlog would wait for the poll"
	costError    = "a consumer would stop for good after one error, or damage would be told as a passing error"
)

// promises are what every round table keeps, whatever else it does. The file states them too, so that who
// reads the table reads what it holds to; it cannot take one away.
func promises() []machine.Promise {
	writes := []string{"insert_jobs", "quarantine_event", "advance_cursor"}
	nothing := []string{"lock_cursor.quiet", "read_events.none"} // to do
	begins := []string{"lock_cursor.held", "read_events.some"}
	whole := func(end string, then ...string) machine.Promise {
		return machine.Promise{End: end, Passes: slices.Concat(begins, then), InOrder: true, Why: costJobs}
	}
	aside := whole("quarantined", "plan_round.contiguous", "decide_recipients.refused", "quarantine_event", "advance_cursor")
	aside.Why = costAside
	return []machine.Promise{
		{
			Transaction: machine.Commit,
			Passes:      []string{"lock_cursor.held", "read_events.some", "plan_round", "decide_recipients", "advance_cursor"},
			InOrder:     true,
			Why:         costJobs,
		},
		{Transaction: machine.Commit, NeverPasses: []string{"plan_round.hole"}, Why: costHole},
		whole("processed", "plan_round.contiguous", "decide_recipients.decided", "insert_jobs", "advance_cursor"),
		whole("lost", "plan_round.expired", "decide_recipients.decided", "insert_jobs", "advance_cursor"),
		aside,
		{
			End: "processed", Transaction: machine.Commit, Passes: []string{"plan_round.contiguous"},
			NeverPasses: []string{"quarantine_event"}, NeverPassesState: []string{"decide_rest"},
			Next: machine.AgainWhenFull, Edge: machine.Settle, Why: costQuiet,
		},
		{
			End: "lost", Transaction: machine.Commit, Passes: []string{"plan_round.expired"},
			NeverPasses: []string{"quarantine_event"}, PassesState: []string{"decide_rest"},
			Next: machine.AgainWhenFull, Edge: machine.Settle, Log: machine.LevelError, Why: costLoss,
		},
		{
			End: "quarantined", Transaction: machine.Commit, Passes: []string{"decide_recipients.refused"},
			NeverPasses: []string{"insert_jobs"}, NeverPassesState: []string{"decide_rest"},
			Next: machine.AgainWhenFull, Edge: machine.Unchanged, Log: machine.LevelError, Why: costTold,
		},
		{
			End:         "idle",
			NeverPasses: []string{"lock_cursor.taken", "lock_cursor.missing", "read_events.some", "read_events.vanished", "read_events.ahead", "read_events.unfinalized"},
			Next:        machine.Wait, Edge: machine.Settle, Why: costFalse,
		},
		{End: "locked", Passes: []string{"lock_cursor.taken"}, Next: machine.Wait, Edge: machine.Unchanged, Why: costRecovery},
		{
			End: "gap", Passes: []string{"lock_cursor.held", "read_events"},
			NeverPasses: append([]string{"read_events.none", "read_events.ahead", "read_events.unfinalized", "decide_recipients"}, writes...),
			Next:        machine.Wait, Failure: FailureGap, Why: costDamage,
		},
		{End: "ahead", Passes: []string{"read_events.ahead"}, NeverPasses: writes, Next: machine.Wait, Failure: FailureAhead, Why: costDamage},
		{
			End: "unfinalized", Passes: []string{"read_events.unfinalized"}, NeverPasses: writes,
			Next: machine.Wait, Edge: machine.Unchanged, Why: costRecovery,
		},
		{End: "stopped", NeverPasses: nothing, Next: machine.Stop, Edge: machine.Unchanged, Why: costStop},
		{
			End:         "failed",
			NeverPasses: append([]string{"read_events.vanished", "read_events.ahead", "read_events.unfinalized", "plan_round.hole"}, nothing...),
			Next:        machine.Wait, Failure: FailureError, Why: costError,
		},
	}
}
