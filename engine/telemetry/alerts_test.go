// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/telemetry"
)

// rule is an alert as far as these tests look at it.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// alertCase is what a unit test of promtool expects of one alert.
type alertCase struct {
	Name string      `yaml:"alertname"`
	Want []yaml.Node `yaml:"exp_alerts"`
}

const root = "../.."

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(read(t, "alerts/bothy.rules.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	var rules []rule
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	if len(rules) == 0 {
		t.Fatal("no rules: the reading is broken")
	}
	return rules
}

func alertCases(t *testing.T) []alertCase {
	t.Helper()
	var file struct {
		Tests []struct {
			Alerts []alertCase `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	if err := yaml.Unmarshal(read(t, "alerts/bothy.rules.test.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	var cases []alertCase
	for _, test := range file.Tests {
		cases = append(cases, test.Alerts...)
	}
	return cases
}

// promtool takes a test of an alert that does not exist for one that does not fire. So here each test names a rule,
// and each rule has a test in which it fires and one in which it does not.
func TestEveryAlertFiresAndIsSilent(t *testing.T) {
	t.Parallel()
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, c := range alertCases(t) {
		fires[c.Name] = fires[c.Name] || len(c.Want) > 0
		silent[c.Name] = silent[c.Name] || len(c.Want) == 0
	}
	var names []string
	for _, r := range alerts(t) {
		names = append(names, r.Alert)
		// of BothyEngineFlapping the silent case is also one of instances beside a firing one
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: a case that fires: %v, one that is silent: %v; want both in alerts/bothy.rules.test.yaml", r.Alert, fires[r.Alert], silent[r.Alert])
		}
	}
	for name := range fires {
		if !slices.Contains(names, name) {
			t.Errorf("a test names the alert %q, which no rule has", name)
		}
	}
}

var (
	seriesName = regexp.MustCompile(`\bbothy_[a-z_]+`)
	labelLists = regexp.MustCompile(`\b(?:by|on|without|ignoring) \([^)]*\)|\{[^}]*\}`)
	labelName  = regexp.MustCompile(`\b(bothy_[a-z_]+)\b`)
)

// unknownSeries lists the names in an expression that no instrument has, as series or as label.
func unknownSeries(expr string) (unknown []string) {
	var series, labels []string
	for _, i := range telemetry.Instruments() {
		series = append(series, i.Series()...)
		for _, a := range i.Attributes {
			labels = append(labels, telemetry.Label(a))
		}
	}
	for _, list := range labelLists.FindAllString(expr, -1) {
		for _, name := range labelName.FindAllString(list, -1) {
			if !slices.Contains(labels, name) {
				unknown = append(unknown, "label "+name)
			}
		}
	}
	for _, name := range seriesName.FindAllString(labelLists.ReplaceAllString(expr, ""), -1) {
		if !slices.Contains(series, name) {
			unknown = append(unknown, "metric "+name)
		}
	}
	return unknown
}

func TestAlertsReadWhatIsExported(t *testing.T) {
	t.Parallel()
	for _, r := range alerts(t) {
		if unknown := unknownSeries(r.Expr); len(unknown) > 0 {
			t.Errorf("%s reads %q, which no process exports", r.Alert, unknown)
		}
	}
	if got := unknownSeries(`max by (bothy_name) (bothy_lag{bothy_round_end="gap"})`); !slices.Equal(got, []string{"label bothy_name", "metric bothy_lag"}) {
		t.Errorf("unknownSeries = %q: this test cannot fail", got)
	}
}

// headings are the anchors of a Markdown page.
func headings(page string) (anchors []string) {
	for line := range strings.Lines(page) {
		if title := strings.TrimLeft(line, "#"); title != line {
			anchors = append(anchors, strings.ToLower(strings.TrimSpace(title)))
		}
	}
	return anchors
}

// Who is paged finds what to do.
func TestEveryAlertHasARunbook(t *testing.T) {
	t.Parallel()
	page := string(read(t, "docs/alerting.md"))
	anchors := headings(page)
	for _, r := range alerts(t) {
		anchor := strings.ToLower(r.Alert)
		if !slices.Contains(anchors, anchor) || r.Annotations["runbook_url"] != "docs/alerting.md#"+anchor {
			t.Errorf("%s has the runbook %q; want docs/alerting.md#%s, and that heading there", r.Alert, r.Annotations["runbook_url"], anchor)
		}
		if level := r.Labels["severity"]; level != "page" && level != "ticket" {
			t.Errorf("%s has severity %q, want page or ticket", r.Alert, level)
		}
		if !strings.Contains(page, "| `"+r.Alert+"` | "+r.Labels["severity"]+" |") {
			t.Errorf("docs/alerting.md has no row of %s with its level %s", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", r.Alert)
		}
	}
}

// A dashboard that reads a metric of another name is blank, and nobody says so.
func TestDashboardReadsWhatIsExported(t *testing.T) {
	t.Parallel()
	var board struct {
		Title  string `json:"title"`
		UID    string `json:"uid"`
		Panels []struct {
			Title       string `json:"title"`
			Description string `json:"description"`
			Type        string `json:"type"`
			Targets     []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(read(t, "alerts/dashboards/delivery-sync.json"), &board); err != nil {
		t.Fatal(err)
	}
	page, used := string(read(t, "docs/dashboards.md")), ""
	for _, p := range board.Panels {
		if len(p.Targets) == 0 || p.Description == "" {
			t.Errorf("panel %q has no query or no description", p.Title)
		}
		for _, target := range p.Targets {
			used += target.Expr + "\n"
			if unknown := unknownSeries(target.Expr); len(unknown) > 0 {
				t.Errorf("panel %q reads %q, which no process exports", p.Title, unknown)
			}
		}
		if !strings.Contains(page, "| "+p.Title+" |") {
			t.Errorf("docs/dashboards.md has no row of the panel %q", p.Title)
		}
	}
	for _, want := range []string{"bothy_event_consumer_lag", "bothy_event_consumer_pending_age_seconds"} {
		if !strings.Contains(used, want) {
			t.Errorf("no panel shows %s", want)
		}
	}
}
