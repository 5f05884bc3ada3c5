// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"example.com/bothy/engine/telemetry"
)

var update = flag.Bool("update", false, "write what the tests got")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fresh = 20 * time.Second

// signals are those of a process with two consumers, and reasons why it is not ready.
func signals(t *testing.T, reasons ...string) *telemetry.Signals {
	t.Helper()
	s, err := telemetry.New(telemetry.Options{
		Version: "test", Fresh: fresh, Digest: 1 << 60, HeadroomWanted: 500,
		Consumers: []telemetry.Consumer{{Name: "push", PendingAlertAfter: 15 * time.Minute}, {Name: "archive", PendingAlertAfter: time.Hour}},
		Ends:      []string{"processed", "idle", "locked", "gap"}, Passed: []string{"locked"}, Succeeds: []string{"processed", "idle"}, Works: []string{"processed"},
		Reasons: []string{"starting", "database_unreachable"}, Ready: func() []string { return reasons },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	return s
}

// scrape gets the page, as a scraper that accepts a format.
func scrape(t *testing.T, s *telemetry.Signals, accept string) string {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	answer := httptest.NewRecorder()
	s.Handler().ServeHTTP(answer, request)
	if answer.Code != http.StatusOK {
		t.Fatalf("GET /metrics: %d\n%s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// sample is the value of one series of a page, or "" when it is not there.
func sample(page, series string) string {
	for line := range strings.Lines(page) {
		if value, found := strings.CutPrefix(line, series+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func wantSample(t *testing.T, page, series, want string) {
	t.Helper()
	if got := sample(page, series); got != want {
		t.Errorf("%s is %q, want %q", series, got, want)
	}
}

func work(t *testing.T, s *telemetry.Signals) {
	t.Helper()
	s.Begin(t.Context())
	s.Listens(true)
	s.Round(t.Context(), telemetry.Round{Consumer: "push", End: "processed", Took: 3 * time.Millisecond, Events: 3, Jobs: 6, Lost: 2})
	s.Round(t.Context(), telemetry.Round{Consumer: "push", End: "gap"})
	s.Round(t.Context(), telemetry.Round{Consumer: "push", End: "locked"})
	s.Round(t.Context(), telemetry.Round{Consumer: "nobody", End: "idle"}) // of no declared consumer
	s.Observed(telemetry.Observation{
		Head: 10, Headroom: 990, Held: time.Minute, Drift: -time.Second,
		Standings: []telemetry.Standing{{"push", 4, 90 * time.Second, 2}, {"retired", 10, time.Hour, 0}, {"archive", -3, -time.Second, 0}},
	})
}

// Case 82: every exposed name, type and label is written down, and the same for scrapers that take UTF-8.
func TestExposition(t *testing.T) {
	t.Parallel()
	s := signals(t, "starting")
	work(t, s)
	pages := map[string][]string{}
	for mode, accept := range map[string]string{
		"plain": "", "utf-8": "text/plain;version=1.0.0;escaping=allow-utf-8,*/*;q=0.1",
	} {
		for line := range strings.Lines(scrape(t, s, accept)) {
			series := line
			if !strings.HasPrefix(line, "#") {
				series = line[:strings.LastIndex(line, " ")] + "\n"
			}
			pages[mode] = append(pages[mode], series)
		}
	}
	if diff := cmp.Diff(pages["plain"], pages["utf-8"]); diff != "" {
		t.Errorf("the names depend on what a scraper accepts (-plain +utf-8):\n%s", diff)
	}
	got, golden := strings.Join(pages["plain"], ""), filepath.Join("testdata", "exposition.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the page has changed, and with it what alerts and dashboards read (-want +got):\n%s\nwhen that is meant: go test ./engine/telemetry -run TestExposition -update", diff)
	}
}

// What is declared is what is exposed, in both directions.
func TestInstrumentsAreExposed(t *testing.T) {
	t.Parallel()
	s := signals(t)
	work(t, s)
	exposed := map[string]string{}
	for line := range strings.Lines(scrape(t, s, "")) {
		if rest, found := strings.CutPrefix(line, "# TYPE "); found {
			name, kind, _ := strings.Cut(strings.TrimSpace(rest), " ")
			exposed[name] = kind
		}
	}
	delete(exposed, "target_info")
	declared := map[string]string{}
	for _, i := range telemetry.Instruments() {
		declared[i.Exposed()] = string(i.Kind)
		if i.Unit != "" && i.Unit != "s" && !strings.HasPrefix(i.Unit, "{") {
			t.Errorf("%s has unit %q: write s, a word in braces, or nothing", i.Name, i.Unit)
		}
	}
	if diff := cmp.Diff(declared, exposed); diff != "" {
		t.Errorf("declared and exposed (-declared +exposed):\n%s", diff)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	s := signals(t, "database_unreachable")
	work(t, s)
	page := scrape(t, s, "")
	for series, want := range map[string]string{
		`bothy_event_consumer_lag{bothy_consumer_name="push"}`:                                    "4",
		`bothy_event_consumer_lag{bothy_consumer_name="archive"}`:                                 "0", // never below zero
		`bothy_event_consumer_lag{bothy_consumer_name="retired"}`:                                 "10",
		`bothy_event_consumer_pending_age_seconds{bothy_consumer_name="push"}`:                    "90",
		`bothy_event_consumer_pending_age_seconds{bothy_consumer_name="archive"}`:                 "0",
		`bothy_event_consumer_pending_alert_after_seconds{bothy_consumer_name="push"}`:            "900",
		`bothy_event_consumer_pending_alert_after_seconds{bothy_consumer_name="retired"}`:         "", // not declared
		`bothy_event_consumer_rounds_total{bothy_consumer_name="push",bothy_round_end="gap"}`:     "1",
		`bothy_event_consumer_rounds_total{bothy_consumer_name="archive",bothy_round_end="idle"}`: "0", // before the first
		`bothy_event_consumer_events_total{bothy_consumer_name="push"}`:                           "3",
		`bothy_event_consumer_jobs_total{bothy_consumer_name="push"}`:                             "6",
		`bothy_event_consumer_lost_total{bothy_consumer_name="push"}`:                             "2",
		`bothy_event_consumer_lost_total{bothy_consumer_name="archive"}`:                          "0",
		`bothy_event_consumer_last_end{bothy_consumer_name="push",bothy_round_end="gap"}`:         "1", // locked says nothing
		`bothy_event_consumer_last_end{bothy_consumer_name="push",bothy_round_end="processed"}`:   "",
		`bothy_event_consumer_round_duration_seconds_count{bothy_consumer_name="push"}`:           "1", // gap did no work
		`bothy_event_consumer_quarantined{bothy_consumer_name="push"}`:                            "2",
		`bothy_event_consumer_quarantined{bothy_consumer_name="archive"}`:                         "0",
		`bothy_event_log_held_seconds`:                                                            "60",
		`bothy_event_log_head`:                                                                    "10",
		`bothy_event_log_headroom`:                                                                "990",
		`bothy_event_log_headroom_wanted`:                                                         "500",
		`bothy_event_listener_connected`:                                                          "1",
		`bothy_database_clock_drift_seconds`:                                                      "-1",
		`bothy_ready`:                                                                             "0",
		`bothy_not_ready{bothy_not_ready_reason="database_unreachable"}`:                          "1",
		`bothy_not_ready{bothy_not_ready_reason="starting"}`:                                      "0",
		`bothy_config_digest`: "0", // the lowest 48 bits of 1<<60
	} {
		wantSample(t, page, series, want)
	}
	if diff := cmp.Diff(map[string]string{"push": "gap"}, s.LastEnds()); diff != "" {
		t.Errorf("LastEnds (-want +got):\n%s", diff)
	}
}

// Case 81 and 84: what the database said is shown while it is fresh, and then it is gone: neither frozen nor zero.
func TestDatabaseSeriesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := signals(t)
		const lag, age, observed = `bothy_event_consumer_lag{bothy_consumer_name="push"}`, `bothy_event_consumer_pending_age_seconds{bothy_consumer_name="push"}`, `bothy_observation_age_seconds`
		<-time.After(time.Second)
		page := scrape(t, s, "")
		wantSample(t, page, lag, "")
		wantSample(t, page, observed, "1")
		work(t, s)
		<-time.After(fresh - time.Millisecond)
		wantSample(t, scrape(t, s, ""), lag, "4")
		<-time.After(time.Millisecond)
		page = scrape(t, s, "")
		for _, series := range []string{lag, age, "bothy_event_log_head", "bothy_event_log_headroom", "bothy_database_clock_drift_seconds"} {
			wantSample(t, page, series, "")
		}
		wantSample(t, page, observed, "20")
		wantSample(t, page, `bothy_event_consumer_pending_alert_after_seconds{bothy_consumer_name="push"}`, "900")
		work(t, s)
		wantSample(t, scrape(t, s, ""), lag, "4")
	})
}

// Success is counted from the first round, and then from the newest that ended well.
func TestSinceSuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := signals(t)
		const series = `bothy_event_consumer_since_success_seconds{bothy_consumer_name="push"}`
		wantSample(t, scrape(t, s, ""), series, "")
		for _, step := range []struct{ end, want string }{{"gap", "1"}, {"gap", "2"}, {"idle", "1"}, {"locked", "2"}} {
			s.Round(t.Context(), telemetry.Round{Consumer: "push", End: step.end})
			<-time.After(time.Second)
			wantSample(t, scrape(t, s, ""), series, step.want)
		}
	})
}

// Case 86: consumers are a closed set, so each has its series, also where the SDK would fold them into one.
func TestManyConsumersKeepTheirSeries(t *testing.T) {
	t.Parallel()
	o := telemetry.Options{Fresh: fresh, Ready: func() []string { return nil }}
	var seen telemetry.Observation
	for i := range 2500 {
		name := fmt.Sprintf("consumer-%d", i)
		o.Consumers = append(o.Consumers, telemetry.Consumer{Name: name, PendingAlertAfter: time.Hour})
		seen.Standings = append(seen.Standings, telemetry.Standing{Name: name, Lag: 1})
	}
	s, err := telemetry.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	s.Observed(seen)
	page := scrape(t, s, "")
	if n := strings.Count(page, "\nbothy_event_consumer_lag{"); n != 2500 || strings.Contains(page, "overflow") {
		t.Errorf("%d series of lag, want 2500 and no overflow", n)
	}
}

// The attributes of metrics are from a closed list.
func TestMetricAttributes(t *testing.T) {
	t.Parallel()
	closed := []string{telemetry.AttrConsumer, telemetry.AttrEnd, telemetry.AttrReason}
	for _, i := range telemetry.Instruments() {
		for _, a := range i.Attributes {
			if !slices.Contains(closed, a) {
				t.Errorf("%s has the attribute %s, which is in no closed set", i.Name, a)
			}
		}
	}
}
