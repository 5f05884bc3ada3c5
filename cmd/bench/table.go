// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"

	"example.com/bothy/engine"
	"example.com/bothy/engine/machine"
)

// interpreter measures one whole round of the table with steps that do nothing. Its goals are absolute:
// they are far from any machine's limits.
func interpreter(ctx context.Context, b *bench) error {
	table, problems := engine.Table()
	if err := problems.Err(); err != nil {
		return err
	}
	answers := map[string]string{
		"lock_cursor": "held", "read_events": "some", "plan_round": "contiguous", "decide_recipients": "decided",
		"insert_jobs": "inserted", "advance_cursor": "advanced",
	}
	step := func(_ context.Context, s machine.Step) (string, error) { return answers[s.Run], nil }
	result := testing.Benchmark(func(tb *testing.B) {
		tb.ReportAllocs()
		for tb.Loop() {
			table.Run(ctx, step)
		}
	})
	b.goal("a round of the table without IO, microseconds", float64(result.NsPerOp())/1000, false, 10)
	b.goal("a round of the table without IO, allocations", float64(result.AllocsPerOp()), false, 60)
	return nil
}
