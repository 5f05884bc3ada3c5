// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/producer"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

const consumers = `
version: 1
database: {url: "${URL}"}
consumers:
  - {name: watch-orders, types: [order.*], job: {kind: orders.notify, queue: notify}, recipients: {field: audience}}
`

// output is what the worker sends, read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Split(strings.TrimSpace(o.b.String()), "\n")
}

// The whole chain: an event is appended, a round makes its jobs, the worker works them. A job of another
// epoch is cancelled, and one that runs again sends nothing again.
func TestWork(t *testing.T) {
	db := enginetest.New(t, enginetest.WithConsumers("watch-orders"))
	cfg, problems := config.Parse("consumers.yaml", []byte(consumers), func(string) (string, bool) { return db.AppURL, true })
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = producer.Append(t.Context(), db.Producer(t),
		producer.Event{Type: "order.placed", Resource: "order", ResourceID: "ord-1", Audience: []string{"alex", "sam"}},
		producer.Event{
			Type: "order.paid", Resource: "order", ResourceID: "ord-1", Audience: []string{"alex"},
			Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		})
	if err != nil {
		t.Fatal(err)
	}
	if o, err := e.Round(t.Context(), "watch-orders"); err != nil || o.Jobs != 3 {
		t.Fatalf("round: %+v, %v; want 3 jobs", o, err)
	}
	db.Exec(t, `INSERT INTO public.river_job (args, kind, queue, max_attempts, tags, metadata) SELECT args, kind, queue, max_attempts, tags, metadata FROM public.river_job WHERE args @> '{"seq": 2}'`)
	db.Exec(t, `INSERT INTO public.river_job (args, kind, queue, max_attempts, tags) SELECT args || '{"epoch": "00000000-0000-7000-8000-000000000000"}', kind, queue, max_attempts, tags FROM public.river_job WHERE args @> '{"seq": 1, "recipient": "sam"}'`)

	db.Exec(t, `UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id + 1000`) // as a restored copy has it

	var out output
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- work(ctx, func(name string) string { return map[string]string{"BOTHY_DATABASE_URL": db.AdminURL}[name] }, &out)
	}()
	pool := db.Admin(t)
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for snoozed := 0; snoozed < 5; { // none is worked
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM public.river_job WHERE state = 'scheduled'`).Scan(&snoozed)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("%d jobs were put off, want 5; the worker sent %q", snoozed, out.lines())
		}
	}
	if sent := out.lines(); sent[0] != "" {
		t.Errorf("on a restored database the worker sent %q", sent)
	}
	db.Exec(t, `UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id - 1000`)
	db.Exec(t, `UPDATE public.river_job SET state = 'available', scheduled_at = now() WHERE state = 'scheduled'`)
	for completed, cancelled := 0, 0; completed < 4 || cancelled < 1; {
		err := pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state = 'cancelled') FROM public.river_job`).Scan(&completed, &cancelled)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("%d jobs completed and %d cancelled, want 4 and 1; the worker sent %q", completed, cancelled, out.lines())
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("work: %v", err)
	}
	sent := map[string]int{}
	for _, line := range out.lines() {
		sent[line]++
	}
	for _, want := range []string{"order.placed ord-1 -> alex", "order.placed ord-1 -> sam", "order.paid ord-1 -> alex in trace 4bf92f3577b34da6a3ce929d0e0e4736"} {
		if sent[want] != 1 {
			t.Errorf("%q was sent %d times, want once; all: %v", want, sent[want], sent)
		}
	}
	if len(sent) != 3 {
		t.Errorf("sent %v, want three lines", sent)
	}
}
