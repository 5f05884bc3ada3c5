// SPDX-License-Identifier: Apache-2.0

// Package restored_test restores real servers, in every way that one can be, under the engine that works them.
package restored_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
	"example.com/bothy/engine/api"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/enginetest/cluster"
	"example.com/bothy/engine/finalize"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// consumers are those of every configuration here. Each event gives each of them one job.
var consumers = []string{"mail", "push"}

// configure is the configuration that every server gets: url leads to it as the engine does, and its commands go
// straight to s.
func configure(t *testing.T, s *cluster.Server, url, environment string) *config.Config {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, `version: 1
database:
  url: ${URL}
  admin_url: ${ADMIN}
  environment: %s
  lock_timeout: 1m
  listen_reconnect_backoff_cap: 1s
  roles: {owner: bothy_owner, app: bothy_app, producers: [bothy_producer]}
consumer: {poll_interval: 50ms}
sync: {partitions_ahead: 1}
consumers:
`, environment)
	for _, name := range consumers {
		fmt.Fprintf(&b, "  - {name: %s, job: {kind: test.%s}, recipients: none}\n", name, name)
	}
	cfg, problems := config.Parse("consumers.yaml", []byte(b.String()), func(name string) (string, bool) {
		address, known := map[string]string{"URL": url, "ADMIN": s.AdminURL}[name]
		return address, known
	})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// process is a running engine.
type process struct {
	engine *engine.Engine
	log    *lines
	stop   func()
}

// run starts an engine and ends it with the test.
func run(t *testing.T, cfg *config.Config) *process {
	t.Helper()
	log := &lines{}
	e, err := engine.Open(t.Context(), cfg, engine.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, engine.RoleAll) }()
	p := &process{engine: e, log: log, stop: sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		e.Close()
	})}
	t.Cleanup(p.stop)
	return p
}

func (p *process) readiness(t *testing.T) (r api.Readiness) {
	t.Helper()
	answer := httptest.NewRecorder()
	p.engine.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	if err := json.Unmarshal(answer.Body.Bytes(), &r); err != nil {
		t.Fatalf("/readyz: %v\n%s", err, answer.Body)
	}
	return r
}

func (p *process) ready(t *testing.T) {
	t.Helper()
	p.until(t, "the engine is ready", func() bool { return p.readiness(t).Ready })
}

// held waits until the engine gives exactly these reasons.
func (p *process) held(t *testing.T, reasons ...api.Reason) {
	t.Helper()
	p.until(t, fmt.Sprintf("the engine is not ready, with %v", reasons), func() bool { return cmp.Equal(p.readiness(t).Reasons, reasons) })
}

func (p *process) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of the engine:\n%s", p.log)
		}
	})
	cluster.Until(t, what, holds)
}

type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// jobs are the numbers whose jobs are there, by consumer and epoch, but for the cancelled ones.
func jobs(t *testing.T, s *cluster.Server) map[string][]int64 {
	t.Helper()
	rows, err := enginetest.Connect(t, s.AdminURL).Query(t.Context(), `SELECT tags[1] || ' ' || (args ->> 'epoch'), array_agg((args ->> 'seq')::bigint ORDER BY (args ->> 'seq')::bigint)
FROM public.river_job WHERE state <> 'cancelled' GROUP BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]int64{}
	var key string
	var seqs []int64
	_, err = pgx.ForEachRow(rows, []any{&key, &seqs}, func() error {
		found[key] = slices.Clone(seqs)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func epochOf(t *testing.T, s *cluster.Server) (epoch string) {
	t.Helper()
	err := enginetest.Connect(t, s.AdminURL).QueryRow(t.Context(), `SELECT sync_epoch::text FROM bothy.instance`).Scan(&epoch)
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}

// numbers are those from first to last, for every consumer under an epoch.
func numbers(epoch string, first, last int64) map[string][]int64 {
	seqs := []int64{}
	for seq := first; seq <= last; seq++ {
		seqs = append(seqs, seq)
	}
	all := map[string][]int64{}
	for _, name := range consumers {
		all[name+" "+epoch] = seqs
	}
	return all
}

func wantJobs(t *testing.T, s *cluster.Server, what string, want map[string][]int64) {
	t.Helper()
	if diff := cmp.Diff(want, jobs(t, s)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// history is a server whose engine has delivered five events.
func history(t *testing.T) (*cluster.Server, *process) {
	t.Helper()
	s := cluster.Start(t, consumers...)
	p := run(t, configure(t, s, s.AppURL, "test"))
	p.ready(t)
	s.Append(t, 5)
	delivered(t, p, s, 5)
	return s, p
}

// delivered waits until every event up to seq was passed by every consumer.
func delivered(t *testing.T, p *process, s *cluster.Server, seq int64) {
	t.Helper()
	conn := enginetest.Connect(t, s.AdminURL)
	p.until(t, fmt.Sprintf("the events up to %d are delivered", seq), func() bool {
		var n int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM bothy.event_consumer_cursors WHERE last_seq >= $1`, seq).Scan(&n)
		return err == nil && n == len(consumers)
	})
}

// heldUntilFinalized is the promise: an engine that runs on a restored server says so, works nothing, also of what
// is appended, and keeps nobody from finalizing. Then it goes on by itself, with the new events, under a new epoch.
func heldUntilFinalized(t *testing.T, p *process, s *cluster.Server) {
	t.Helper()
	p.held(t, api.Unfinalized)
	old, before := epochOf(t, s), jobs(t, s)
	s.Append(t, 3)
	head := s.Head(t)
	p.held(t, api.Unfinalized)
	wantJobs(t, s, "jobs although nothing is finalized", before)

	report, err := engine.FinalizeRestore(t.Context(), configure(t, s, s.AppURL, "test"), engine.FinalizeOptions{By: "Alex"})
	if err != nil || report.End.Name != finalize.EndFinalized {
		t.Fatalf("finalize: got end %q, sessions %+v, %v, want finalized", report.End.Name, report.Sessions, err)
	}
	p.ready(t)
	s.Append(t, 2)
	delivered(t, p, s, head+2)
	epoch := epochOf(t, s)
	if epoch == old {
		t.Errorf("the epoch %s is the old one", epoch)
	}
	// what was not worked before the restore is cancelled: it lies before the point that finalize moved to
	wantJobs(t, s, "jobs after the restore was finalized", numbers(epoch, head+1, head+2))
	p.stop()
	for _, once := range []string{"error.type=" + string(api.Unfinalized), "engine goes on"} {
		if n := strings.Count(p.log.String(), once); n != 1 {
			t.Errorf("the log says %q %d times, want once:\n%s", once, n, p.log)
		}
	}
	verdict, err := engine.VerifyAudit(t.Context(), configure(t, s, s.AppURL, "test"), nil)
	if err != nil || !verdict.Sound {
		t.Errorf("the audit after the restore: %+v, %v, want it sound", verdict, err)
	}
}
