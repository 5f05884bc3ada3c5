// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/bothy/engine/statuspage"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	failing, over := &statuspage.Failure{Kind: "rule"}, &statuspage.Failure{Kind: "rule", Over: true}
	// stands makes a consumer that is late after 60 seconds.
	stands := func(lag int64, pending float64, moved time.Duration, failure *statuspage.Failure) statuspage.Consumer {
		return statuspage.Consumer{
			Declared: true, Cursor: new(int64(7)), Lag: &lag, PendingSeconds: &pending, AlertAfterSeconds: new(60.0),
			MovedAt: new(now.Add(-moved)), Failure: failure,
		}
	}
	for name, c := range map[string]struct {
		consumer statuspage.Consumer
		stale    bool
		want     statuspage.State
	}{
		"at the head":                    {stands(0, 0, time.Hour, nil), false, statuspage.StateCurrent},
		"events wait":                    {stands(3, 59, time.Hour, nil), false, statuspage.StateWorking},
		"exactly at the threshold":       {stands(3, 60, time.Hour, nil), false, statuspage.StateWorking},
		"late and standing":              {stands(3, 61, 61*time.Second, nil), false, statuspage.StateStalled},
		"late and moving":                {stands(3, 61, 60*time.Second, nil), false, statuspage.StateLate},
		"late, standing and failing":     {stands(3, 61, time.Hour, failing), false, statuspage.StateStalled},
		"failing":                        {stands(3, 1, time.Hour, failing), false, statuspage.StateFailing},
		"failing at the head":            {stands(0, 0, time.Hour, failing), false, statuspage.StateFailing},
		"failed once":                    {stands(0, 0, time.Hour, over), false, statuspage.StateCurrent},
		"no cursor":                      {statuspage.Consumer{Declared: true}, false, statuspage.StateNew},
		"no cursor, and failing":         {statuspage.Consumer{Declared: true, Failure: failing}, false, statuspage.StateFailing},
		"not declared":                   {statuspage.Consumer{Cursor: new(int64(7)), PendingSeconds: new(1e6)}, false, statuspage.StateUndeclared},
		"not seen of late":               {stands(3, 61, time.Hour, nil), true, statuspage.StateUnknown},
		"not seen of late, not declared": {statuspage.Consumer{}, true, statuspage.StateUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.consumer.Judge(now, !c.stale)
			if c.consumer.State != c.want {
				t.Errorf("%s, want %s", c.consumer.State, c.want)
			}
		})
	}
}

// Every state has its words on the page and its row in the documentation.
func TestEveryStateIsExplained(t *testing.T) {
	t.Parallel()
	script := ask(t, newPage(t, nil), "GET", "/status/page.js").body
	page, err := os.ReadFile("../../docs/status-page.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statuspage.States() {
		words := regexp.MustCompile(`\b` + string(s) + `: \['[^']+', '([^']+)'\]`).FindStringSubmatch(script)
		if words == nil {
			t.Errorf("the script has no words for %s", s)
			continue
		}
		if row := "| `" + string(s) + "` | " + words[1] + " |"; !strings.Contains(string(page), row) {
			t.Errorf("docs/status-page.md has no row that begins with %s", row)
		}
	}
}
