// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestConfigCheckConsumerAlertBelowRetention: equal fails, longer fails, shorter passes. The message names
// both keys and both places, and no value.
func TestConfigCheckConsumerAlertBelowRetention(t *testing.T) {
	for alert, want := range map[string]bool{"25h": false, "24h": false, "23h59m": true} {
		for _, text := range []string{
			good + fmt.Sprintf("sync: {event_retention: 24h}\nconsumer: {pending_alert_after: %s}\n", alert),
			good + fmt.Sprintf("    pending_alert_after: %s\nsync: {event_retention: 24h}\n", alert),
		} {
			_, problems := Parse("consumers.yaml", []byte(text), env)
			if want != (len(problems) == 0) || len(problems) > 1 {
				t.Errorf("%s: got %v, want passes %v", text, problems, want)
				continue
			}
			for _, p := range problems {
				said := p.What + p.Fix
				if p.Code != "late-alert" || p.Also.Line == 0 || strings.Contains(said, "24h") || strings.Contains(said, alert) ||
					!strings.Contains(p.What, "pending_alert_after") || !strings.Contains(p.What, "sync.event_retention") {
					t.Errorf("%s: got %v, want both keys, both places and no value", text, p)
				}
			}
		}
	}
}

// What the file does not say is compared by its default, and what only the environment knows is not compared.
func TestChecksOfDefaultsAndVariables(t *testing.T) {
	for text, want := range map[string]string{
		good + "consumer: {pending_alert_after: 5s}\n":                   "6:33 slow-poll",
		consumerWith("poll_interval: 15m"):                               "6:20 slow-poll",
		consumerWith("batch: 100\nsync: {event_log_partition_size: 99}"): "7:34 small-partition",
		good + "sync: {event_log_partition_size: 99}\n":                  "6:34 small-partition",
		good + "sync: {event_log_partition_size: 100}\n":                 "",
		good + "database: {pool_max_conns: 3}\n":                         "6:28 small-pool",
		good + "database: {pool_max_conns: 4}\n":                         "",
		consumerWith("poll_interval: 2h"):                                "6:20 bad-duration", // and not slow as well
	} {
		_, problems := Parse("consumers.yaml", []byte(text), env)
		if got := strings.Join(places(problems), ", "); got != want {
			t.Errorf("input:\n%s\ngot %s, want %s", text, got, want)
		}
	}
	text := good + "    poll_interval: ${POLL}\nconsumer: {pending_alert_after: \"${ALERT}\"}\nsync: {event_retention: 1h}\ndatabase: {pool_max_conns: \"${POOL}\"}\n"
	if _, problems := Parse("consumers.yaml", []byte(text), nil); problems.Errors() > 0 || len(problems) != 3 {
		t.Errorf("input:\n%s\ngot %v, want three warnings about variables", text, problems)
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		pattern, other string
		want           bool
	}{
		{"*", "order.*", true},
		{"order.*", "order.paid", true},
		{"order.*", "order.*", true},
		{"*.paid", "order.paid", true},
		{"a*c", "a*b*c", true},
		{"a*b*c", "a*c", false},
		{"order.*", "order*", false},
		{"order*", "order.*", true},
		{"order.paid", "order.*", false},
		{"**", "*", true},
		{"*", "**", true},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"*a*", "b*", false},
		{"*b*c", "bcbc", true},
		{"a", "a", true},
	} {
		if got := newPattern(c.pattern).covers(newPattern(c.other)); got != c.want {
			t.Errorf("covers(%q, %q) is %v, want %v", c.pattern, c.other, got, c.want)
		}
	}
}

func TestRepeats(t *testing.T) {
	const arm = "SELECT b.seq, 'a' AS recipient FROM batch b"
	for query, want := range map[string]bool{
		arm:                       false,
		arm + " UNION ALL " + arm: true,
		arm + "\nunion  all\n  " + strings.ReplaceAll(arm, " FROM", "\n FROM"): true,
		arm + " UNION " + arm: false,
		arm + " UNION ALL SELECT b.seq, 'b' AS recipient FROM batch b": false,
		"SELECT * FROM (" + arm + " UNION ALL " + arm + ") r":          false,
		arm + " UNION ALL SELECT 1, 'x' FROM batch UNION ALL " + arm:   true,
		"SELECT 'UNION ALL' FROM batch":                                false,
	} {
		if got := repeats(query); got != want {
			t.Errorf("%s\nrepeats: %v, want %v", query, got, want)
		}
	}
}

// The place of a character inside a query, which is trimmed, is where its author wrote it.
func TestInsideAQuery(t *testing.T) {
	cfg := mustParse(t, `version: 1
consumers:
  - name: one
    job: {kind: a.b}
    recipients:
      query: |

        SELECT b.seq,
          b.wrong FROM batch b;
  - name: two
    job: {kind: c.d}
    recipients: {query: "  SELECT \"wrong\" FROM batch"}
`)
	for i, want := range []string{"consumers.yaml:9:13", "consumers.yaml:12:37"} {
		path := fmt.Sprintf("consumers[%d].recipients.query", i)
		query := cfg.Consumers[i].Recipients.Query
		if got := cfg.Inside(path, strings.Index(query, "wrong")).String(); got != want {
			t.Errorf("%q: wrong is at %s, want %s", query, got, want)
		}
	}
	if got, want := cfg.Inside("consumers[0].name", 1).String(), "consumers.yaml:3:12"; got != want {
		t.Errorf("inside a name: %s, want %s", got, want)
	}
}
