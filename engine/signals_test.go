// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/bothy/engine"
	"example.com/bothy/engine/api"
	"example.com/bothy/engine/devdb"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// consumerGauge reads a gauge as a reader of OpenTelemetry's sees it, by its only attribute.
func consumerGauge(t *testing.T, reader *metric.ManualReader, name string) map[string]float64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	add := func(attributes interface {
		Len() int
	}, consumer string, value float64,
	) {
		if attributes.Len() != 1 || consumer == "" {
			t.Errorf("%s has %d attributes, want bothy.consumer.name alone", name, attributes.Len())
		}
		values[consumer] = value
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch gauge := m.Data.(type) {
			case metricdata.Gauge[int64]:
				for _, p := range gauge.DataPoints {
					consumer, _ := p.Attributes.Value("bothy.consumer.name")
					add(&p.Attributes, consumer.AsString(), float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range gauge.DataPoints {
					consumer, _ := p.Attributes.Value("bothy.consumer.name")
					add(&p.Attributes, consumer.AsString(), p.Value)
				}
			default:
				t.Errorf("%s is a %T, want a gauge", name, m.Data)
			}
		}
	}
	return values
}

func TestConsumerLagGauges(t *testing.T) {
	t.Parallel()
	push, archive := entry{name: "push"}, entry{name: "archive"}
	db := database(t, push, archive)
	reader := metric.NewManualReader()
	e := open(t, configure(t, db, push, archive), engine.WithMetricReader(reader))
	ensure(t, e)
	db.Append(t, 5)
	db.Exec(t, `UPDATE bothy.event_log SET occurred_at = clock_timestamp() - seq * interval '1 hour'`)
	wantRound(t, e, "archive", "processed")
	db.Exec(t, `UPDATE bothy.event_consumer_cursors SET last_seq = 2 WHERE name = 'push'`)
	look := func() (lag, age map[string]float64) {
		if err := e.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		return consumerGauge(t, reader, "bothy.event.consumer.lag"), consumerGauge(t, reader, "bothy.event.consumer.pending_age")
	}
	lag, age := look()
	if lag["push"] != 3 || lag["archive"] != 0 || len(lag) != 2 {
		t.Errorf("lag %v, want push 3 and archive 0", lag)
	}
	// the oldest event after the cursor is number 3, which happened three hours ago by the clock of the database
	if got := age["push"]; got < 3*3600 || got > 3*3600+patience.Seconds() || age["archive"] != 0 || len(age) != 2 {
		t.Errorf("pending age %v, want push three hours and archive 0", age)
	}
	wantRound(t, e, "push", "processed")
	if lag, age := look(); lag["push"] != 0 || age["push"] != 0 {
		t.Errorf("at the head: lag %v, age %v, want 0 and 0", lag, age)
	}
}

// serving runs an engine with a listener of its own and gives its address.
func serving(t *testing.T, e *engine.Engine, role engine.Role) (base string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, role) }()
	stop = func() {
		if cancel(); done == nil {
			return
		}
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		done = nil
	}
	t.Cleanup(func() { stop() })
	waitUntil(t, "the listener is open", func() bool { return e.Address() != "" })
	return "http://" + e.Address(), stop
}

const listenHere = "http: {listen: '127.0.0.1:0'}\n"

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	status, body, err := api.Ask(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return status, string(body)
}

func readiness(t *testing.T, base string) (r api.Readiness) {
	t.Helper()
	status, body := get(t, base+"/readyz")
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("/readyz: %v\n%s", err, body)
	}
	if (status == http.StatusOK) != r.Ready || r.Ready != (len(r.Reasons) == 0) {
		t.Errorf("/readyz answers %d with %s", status, body)
	}
	return r
}

func isReady(t *testing.T, base string) func() bool {
	t.Helper()
	return func() bool { return readiness(t, base).Ready }
}

// Role api runs no rounds, and still shows a consumer that is behind: who stands still does not tell of it himself.
func TestConsumerLagGaugesInApiRole(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	cfg := configureWith(t, db.AppURL, listenHere, push)
	e := open(t, cfg)
	ensure(t, e)
	db.Append(t, 4)
	base, stop := serving(t, e, engine.RoleAPI)
	waitUntil(t, "the lag shows", func() bool {
		_, page := get(t, base+"/metrics")
		return strings.Contains(page, `bothy_event_consumer_lag{bothy_consumer_name="push"} 4`)
	})
	_, page := get(t, base+"/metrics")
	if strings.Contains(page, "bothy_event_consumer_pending_age_seconds{bothy_consumer_name=\"push\"} 0\n") {
		t.Error("the pending age is 0 although events wait")
	}
	if strings.Contains(page, "bothy_event_consumer_rounds_total") || strings.Contains(page, "bothy_event_listener_connected") {
		t.Error("role api shows metrics of rounds, and runs none")
	}
	if r := readiness(t, base); !r.Ready || r.Role != "api" {
		t.Errorf("readiness %+v, want ready in role api", r)
	}
	stop()
	if cursor, jobs := cursorOf(t, db, "push"), len(jobsOf(t, db, "push")); cursor != 0 || jobs != 0 {
		t.Errorf("cursor %d and %d jobs: role api ran a round", cursor, jobs)
	}
}

// Case 84: a scrape is answered while what it shows is being waited for, for as long as that may take.
func TestScrapeWhileTheDatabaseIsBlocked(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	cfg := configureWith(t, db.AppURL, listenHere, push)
	cfg.Database.LockTimeout, cfg.Database.StatementTimeout = time.Hour, time.Hour
	e := open(t, cfg)
	ensure(t, e)
	base, _ := serving(t, e, engine.RoleAPI)
	waitUntil(t, "the first look", isReady(t, base))
	tx, err := enginetest.Connect(t, db.AdminURL).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK TABLE bothy.event_consumer_cursors IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the look waits for the lock", func() bool {
		var n int
		err := admin(t, db).QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'bothy.event_consumer_cursors'::regclass`).Scan(&n)
		return err == nil && n > 0
	})
	for range 3 { // within the limit of Ask, while the lock holds
		if status, page := get(t, base+"/metrics"); status != http.StatusOK || !strings.Contains(page, "bothy_observation_age_seconds") {
			t.Errorf("a scrape while the database is blocked: %d\n%s", status, page)
		}
		readiness(t, base)
		if status, _ := get(t, base+"/healthz"); status != http.StatusOK {
			t.Errorf("/healthz: %d while the database is blocked", status)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Case 84: two servers that scrape and a collector that reads cost the database nothing: it is asked by look alone, with
// one statement for all consumers.
func TestScrapersCostTheDatabaseNothing(t *testing.T) {
	t.Parallel()
	push, archive := entry{name: "push"}, entry{name: "archive"}
	db := database(t, push, archive)
	reader := metric.NewManualReader()
	var asked trips
	e := open(t, configure(t, db, push, archive), engine.WithMetricReader(reader), engine.WithTracer(&asked))
	ensure(t, e)
	for range 2 { // the first prepares its statement
		asked.take()
		if err := e.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if made := asked.take(); !slices.Equal(made, []string{"BEGIN", "SELECT", "rollback"}) {
		t.Errorf("a look took the round trips %q, want one statement in a transaction", made)
	}
	for range 100 {
		for range 2 {
			if page := recorded(t, e); !strings.Contains(page, `bothy_event_consumer_lag{bothy_consumer_name="archive"}`) {
				t.Fatalf("the page has no lag:\n%s", page)
			}
		}
		if lag := consumerGauge(t, reader, "bothy.event.consumer.lag"); len(lag) != 2 {
			t.Fatalf("lag %v, want that of both consumers", lag)
		}
	}
	if made := asked.take(); len(made) > 0 {
		t.Errorf("300 scrapes asked the database %d times: %q", len(made), made)
	}
}

// A stopped server: the pages answer, what the database said is gone, and two lines tell of it, however many
// consumers there are.
func TestStoppedDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, open := range []string{filepath.Dir(dir), dir} { // the account that root hands the server to has to get in
		if err := os.Chmod(open, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir = filepath.Join(dir, "data")
	start := func() *devdb.Server {
		server, err := devdb.Start(context.Background(), devdb.Options{Data: dir, Fetch: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Stop() })
		return server
	}
	server := start()
	url := server.URL(devdb.Superuser, "postgres")
	entries := []entry{{name: "push"}, {name: "archive"}, {name: "index"}}
	_, err := postgres.Migrate(t.Context(), postgres.MigrateOptions{
		AdminURL: url, Schema: enginetest.Schema, PartitionsAhead: 1, JobsSchema: enginetest.JobsSchema, JobsMigrate: true,
		ConsumerNames: []string{"push", "archive", "index"},
	})
	if err != nil {
		t.Fatal(err)
	}
	proxy := enginetest.NewProxy(t, url)
	var log lines
	e := open(t, configureWith(t, proxy.URL, listenHere+"consumer: {poll_interval: 50ms}", entries...),
		engine.WithLogger(log.logger()), engine.WithFresh(3*time.Second))
	base, stop := serving(t, e, engine.RoleAll)
	const lag = `bothy_event_consumer_lag{bothy_consumer_name="push"}`
	shows := func() bool { _, page := get(t, base+"/metrics"); return strings.Contains(page, lag) }
	waitUntil(t, "it is ready and listens", func() bool {
		_, page := get(t, base+"/metrics")
		return readiness(t, base).Ready && strings.Contains(page, lag) && strings.Contains(page, "bothy_event_listener_connected 1")
	})
	before := len(log.String())

	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "/readyz says why", func() bool {
		r := readiness(t, base)
		return len(r.Reasons) > 0 && r.Reasons[0] == api.Unreachable
	})
	waitUntil(t, "the lag is gone", func() bool { return !shows() })
	_, page := get(t, base+"/metrics")
	for _, want := range []string{"bothy_ready 0", `bothy_not_ready{bothy_not_ready_reason="database_unreachable"} 1`, "bothy_event_listener_connected 0", "bothy_observation_age_seconds", "bothy_event_consumer_pending_alert_after_seconds{"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s\n%s", want, page)
		}
	}
	for _, gone := range []string{"bothy_event_consumer_pending_age_seconds{", "\nbothy_event_log_head "} {
		if strings.Contains(page, gone) {
			t.Errorf("the page still has %s", gone)
		}
	}

	proxy.Redirect(t, start().URL(devdb.Superuser, "postgres"))
	waitUntil(t, "it is ready again, and every consumer has had a round", func() bool {
		r := readiness(t, base)
		return r.Ready && shows() && r.Ends["push"] == "idle" && r.Ends["archive"] == "idle" && r.Ends["index"] == "idle"
	})
	told := strings.Split(strings.TrimSpace(log.String()[before:]), "\n")
	if len(told) != 2 || !strings.Contains(told[0], "database unreachable") || !strings.Contains(told[0], "error.type=") ||
		!strings.Contains(told[1], "database reachable again") || !strings.Contains(told[1], "bothy.outage.duration=") {
		t.Errorf("log of the outage:\n%s\nwant one line when it begins and one when it ends", strings.Join(told, "\n"))
	}
	stop()
}

// One connection that breaks is no outage: its consumer says so, as ever.
func TestBrokenConnectionIsNoOutage(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: "{handler: end}"}
	db := database(t, push)
	var log lines
	e := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 50ms}", push), engine.WithLogger(log.logger()))
	broken := false
	register(t, e, "end", func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
		if broken {
			return []string{"alex"}, nil
		}
		broken = true
		_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
		_ = err // the connection is gone, whatever this says
		return nil, nil
	})
	ensure(t, e)
	db.Append(t, 1)
	stop := runInBackground(t, e)
	waitUntil(t, "the consumer recovers", func() bool { return strings.Contains(log.String(), "event consumer recovered") })
	stop()
	if got := log.String(); !strings.Contains(got, "event consumer round failed") || strings.Contains(got, "unreachable") {
		t.Errorf("log:\n%swant the failed round, and no outage", got)
	}
}

// A process that is told to stop is not ready from that moment on, and its pages answer until it has stopped.
func TestStoppingIsNotReadyAtOnce(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: "{handler: hold}"}
	db := database(t, push)
	e := open(t, configureWith(t, db.AppURL, listenHere, push))
	begun, release := make(chan struct{}), make(chan struct{})
	register(t, e, "hold", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
		close(begun)
		<-release
		return nil, nil
	})
	ensure(t, e)
	db.Append(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, engine.RoleAll) }()
	<-begun
	base := "http://" + e.Address()
	cancel()
	waitUntil(t, "it is not ready", func() bool {
		r := readiness(t, base)
		return !r.Ready && r.Reasons[0] == api.Stopping
	})
	if status, _ := get(t, base+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d while the process stops, want 200", status)
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, _, err := api.Ask(t.Context(), base+"/healthz"); err == nil {
		t.Error("the listener is still open after Run")
	}
}

// Reasons that the database gives: it was restored, and it was migrated past this binary.
func TestReadinessReasons(t *testing.T) {
	t.Parallel()
	for reason, c := range map[api.Reason]struct{ spoil, mend string }{
		api.Unfinalized:  {`UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id + 1`, `UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id - 1`},
		api.BinaryTooOld: {`INSERT INTO bothy.schema_migration (version, name, oldest_binary) VALUES (9999, 'later', 9999)`, `DELETE FROM bothy.schema_migration WHERE version = 9999`},
		api.SchemaTooOld: {`UPDATE bothy.schema_migration SET version = -version WHERE version = 1`, `UPDATE bothy.schema_migration SET version = -version WHERE version = -1`},
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			push := entry{name: "push"}
			db := database(t, push)
			e := open(t, configure(t, db, push))
			ensure(t, e)
			look := func() string {
				if err := e.Look(t.Context()); err != nil {
					t.Fatal(err)
				}
				e.LookAtSchema(t.Context())
				return strings.Join(e.Reasons(), " ")
			}
			if got := look(); got != "starting" {
				t.Errorf("reasons %q before, want starting", got)
			}
			db.Exec(t, c.spoil)
			want := "starting " + string(reason)
			if reason == api.Unfinalized {
				want = string(reason) // that the start waits for it goes without saying
			}
			if got := look(); got != want {
				t.Errorf("reasons %q, want %q", got, want)
			}
			db.Exec(t, c.mend)
			if got := look(); got != "starting" {
				t.Errorf("reasons %q after, want starting", got)
			}
		})
	}
}

// An address that is taken is told before anything begins.
func TestListenAddressTaken(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	first := open(t, configureWith(t, db.AppURL, listenHere, push))
	base, _ := serving(t, first, engine.RoleAPI)
	second := open(t, configureWith(t, db.AppURL, "http: {listen: '"+strings.TrimPrefix(base, "http://")+"'}", push))
	if err := second.Run(t.Context(), engine.RoleAPI); err == nil || !strings.Contains(err.Error(), "http.listen") {
		t.Errorf("Run = %v, want an error that names http.listen", err)
	}
}

// The digest tells processes with different configurations apart, and says nothing of a secret.
func TestConfigDigest(t *testing.T) {
	t.Parallel()
	db := database(t)
	digest := func(url string, e entry) string {
		cfg := configureWith(t, url, "", e)
		one := open(t, cfg)
		_, rest, found := strings.Cut(recorded(t, one), "\nbothy_config_digest ")
		if !found {
			t.Fatal("the page has no digest")
		}
		value, _, _ := strings.Cut(rest, "\n")
		return value
	}
	a, b := digest(db.AppURL, entry{name: "push"}), digest(db.AppURL+"&connect_timeout=7", entry{name: "push"})
	if a != b {
		t.Errorf("digests %s and %s of configurations that differ in a secret only", a, b)
	}
	if c := digest(db.AppURL, entry{name: "push", batch: 11}); c == a {
		t.Errorf("the digest %s does not change with the configuration", c)
	}
}

// recorded is the page of metrics, from the handler that a program can mount itself.
func recorded(t *testing.T, e *engine.Engine) string {
	t.Helper()
	answer := httptest.NewRecorder()
	e.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}
