// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
)

// before runs do once, between the read of a round and its rule.
type before struct {
	once sync.Once
	do   func()
}

func (*before) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*before) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (b *before) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if strings.HasPrefix(data.Batch.QueuedQueries[0].SQL, "SAVEPOINT") {
		b.once.Do(b.do)
	}
	return ctx
}
func (*before) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*before) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// Somebody deletes a row of the log by hand while a round is between its read and its rule. The rule cannot see
// the event, so nobody would get its job: the round fails, and the next one finds the hole.
func TestEventDeletedBetweenReadAndRule(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: `{query: "SELECT b.seq, 'x' AS recipient FROM batch b"}`}
	for name, seq := range map[string]string{"in the middle": "2", "the last": "3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t, push)
			tracer := &before{do: func() { db.Exec(t, `DELETE FROM bothy.event_log WHERE seq = `+seq) }}
			e := open(t, configure(t, db, push), engine.WithTracer(tracer))
			ensure(t, e)
			db.Append(t, 3)
			o := wantRound(t, e, "push", "failed")
			if o.Err == nil || !strings.Contains(o.Err.Error(), "of 3 events that the round had read, the log now holds 2") {
				t.Errorf("got %v, want the number of events that are left", o.Err)
			}
			if got := cursorOf(t, db, "push"); got != 0 {
				t.Errorf("cursor: got %d, want 0", got)
			}
			if got := db.Jobs(t, "test.push"); got != 0 {
				t.Errorf("jobs: got %d, want none", got)
			}
			if seq == "3" {
				wantRound(t, e, "push", "processed") // all that comes before the hole
			}
			wantRound(t, e, "push", "gap")
		})
	}
}
