// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/statuspage"
)

const (
	pageToken = "correct-horse-battery"
	withToken = "http: {listen: '127.0.0.1:0', admin_token: " + pageToken + "}\n"
)

// getAs asks with a token, or without one where it is empty.
func getAs(t *testing.T, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// shownAt are the facts of a page, and their text.
func shownAt(t *testing.T, base string) (f statuspage.Facts, text string) {
	t.Helper()
	status, text := getAs(t, base+"/status/facts", pageToken)
	if err := json.Unmarshal([]byte(text), &f); err != nil || status != http.StatusOK {
		t.Fatalf("facts: %d, %v\n%s", status, err, text)
	}
	return f, text
}

func consumerIn(f statuspage.Facts, name string) statuspage.Consumer {
	if at := slices.IndexFunc(f.Consumers, func(c statuspage.Consumer) bool { return c.Name == name }); at >= 0 {
		return f.Consumers[at]
	}
	return statuspage.Consumer{}
}

// The page follows what rounds do: a consumer that fails, for how long and with what kind of error, and that it is over.
// Nothing of an event, a recipient or the text of an error is on it.
func TestStatusPageFollowsRounds(t *testing.T) {
	t.Parallel()
	push, archive := entry{name: "push", recipients: "{handler: choose}"}, entry{name: "archive"}
	db := database(t, push, archive)
	e := open(t, configureWith(t, db.AppURL, withToken+"consumer: {poll_interval: 50ms}\njobs: {ui_url: 'https://jobs.example.com/'}", push, archive), engine.WithPace(100*time.Millisecond))
	var broken atomic.Bool
	broken.Store(true)
	register(t, e, "choose", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
		if broken.Load() {
			return nil, errors.New("no address for robin in SELECT hunter2")
		}
		return []string{"robin"}, nil
	})
	base, _ := serving(t, e, engine.RoleAll)
	waitUntil(t, "both are at the head", func() bool {
		f, _ := shownAt(t, base)
		return consumerIn(f, "push").State == statuspage.StateCurrent && consumerIn(f, "archive").State == statuspage.StateCurrent
	})
	db.Append(t, 3)
	waitUntil(t, "push fails again and again", func() bool {
		f, _ := shownAt(t, base)
		c := consumerIn(f, "push")
		return c.State == statuspage.StateFailing && c.Failure != nil && c.Failure.Rounds > 1 && *c.Lag == 3
	})
	f, text := shownAt(t, base)
	c := consumerIn(f, "push")
	if c.Failure.Kind != "handler" || c.Failure.Over || *c.End != "failed" || c.Failure.Since.After(c.Failure.At) || c.Kind != "test.push" {
		t.Errorf("the failing consumer is %+v with %+v", c, c.Failure)
	}
	waitUntil(t, "archive goes on", func() bool {
		f, _ := shownAt(t, base)
		c := consumerIn(f, "archive")
		return c.State == statuspage.StateCurrent && *c.Cursor == 3 && c.Failure == nil
	})
	for _, no := range []string{"robin", "alex", "hunter2", "SELECT", "order.created", pageToken, "postgres://"} {
		if strings.Contains(text, no) {
			t.Errorf("the facts hold %q:\n%s", no, text)
		}
	}
	broken.Store(false)
	waitUntil(t, "push has recovered", func() bool {
		f, _ := shownAt(t, base)
		c := consumerIn(f, "push")
		return c.State == statuspage.StateCurrent && c.Failure != nil && c.Failure.Over && *c.Cursor == 3
	})
	waitUntil(t, "the oldest event is known", func() bool { f, _ := shownAt(t, base); return f.Log.OldestSeq != nil && *f.Log.OldestSeq == 1 })
	f, _ = shownAt(t, base)
	if !f.Process.Ready || f.Process.Role != "all" || !f.RunsHere || !f.Fresh || *f.Log.Head != 3 || f.JobsURL != "https://jobs.example.com/" ||
		f.Identity.State != statuspage.IdentitySame || f.Identity.Stored == nil || len(f.Identity.Epoch) != 36 || f.Log.RetentionSeconds != 720*3600 {
		t.Errorf("the facts are %+v", f)
	}
	if h := f.History; h == nil || len(h.At) < 2 || len(h.Pending["push"]) != len(h.At) {
		t.Errorf("the history is %+v", h)
	}
}

// Every role answers /status in its own way, and no answer comes without the token.
func TestStatusPageRoles(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	for name, c := range map[string]struct {
		sections     string
		role         engine.Role
		page, facts  int
		says, onPage string
	}{
		"api":             {withToken, engine.RoleAPI, 200, 401, "send the token", "<title>"},
		"all":             {withToken, engine.RoleAll, 200, 401, "send the token", "<title>"},
		"worker":          {withToken, engine.RoleWorker, 404, 404, "the role worker", "the roles api and all"},
		"without a token": {listenHere, engine.RoleAPI, 404, 404, "http.admin_token", "http.admin_token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, _ := serving(t, open(t, configureWith(t, db.AppURL, c.sections, push)), c.role)
			status, body := getAs(t, base+"/status", "")
			if status != c.page || !strings.Contains(body, c.onPage) {
				t.Errorf("/status: %d %q, want %d with %q", status, body, c.page, c.onPage)
			}
			if status, body = getAs(t, base+"/status/facts", ""); status != c.facts || !strings.Contains(body, c.says) || strings.Contains(body, "push") {
				t.Errorf("/status/facts: %d %q, want %d with %q", status, body, c.facts, c.says)
			}
			if status, _ = getAs(t, base+"/jobs/", ""); status != http.StatusNotFound {
				t.Errorf("/jobs/: %d, want 404: nobody asked for it", status)
			}
		})
	}
}

// What the database said is not shown once it is old, and the page says why.
func TestStatusPageForgetsWhatIsOld(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	proxy := enginetest.NewProxy(t, db.AppURL)
	e := open(t, configureWith(t, proxy.URL, withToken, push), engine.WithPace(100*time.Millisecond), engine.WithFresh(time.Second))
	ensure(t, e)
	base, _ := serving(t, e, engine.RoleAPI)
	waitUntil(t, "the consumer is shown", func() bool { f, _ := shownAt(t, base); return consumerIn(f, "push").State == statuspage.StateCurrent })
	proxy.Refuse()
	waitUntil(t, "nothing is believed any more", func() bool {
		f, _ := shownAt(t, base)
		c := consumerIn(f, "push")
		return !f.Fresh && f.SeenAt != nil && f.Log.Head == nil && c.State == statuspage.StateUnknown && c.Lag == nil && c.Cursor == nil &&
			len(f.Process.Reasons) == 1 && f.Process.Reasons[0].Name == "database_unreachable" && f.Process.Reasons[0].Means != ""
	})
	proxy.Restore()
	waitUntil(t, "it is shown again", func() bool {
		f, _ := shownAt(t, base)
		return consumerIn(f, "push").State == statuspage.StateCurrent && f.Process.Ready
	})
}

// A viewer who waits for news does not keep the process from stopping.
func TestStopAnswersViewers(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	var log lines
	e := open(t, configureWith(t, db.AppURL, withToken, push), engine.WithPace(time.Hour), engine.WithLogger(log.logger()))
	ensure(t, e)
	base, stop := serving(t, e, engine.RoleAPI)
	waitUntil(t, "the first look", isReady(t, base))
	answered := make(chan int, 1)
	waits := func() bool { // a request that is not answered at once waits
		f, _ := shownAt(t, base)
		go func() {
			status, _ := getAs(t, base+"/status/facts?after="+f.Revision, pageToken)
			answered <- status
		}()
		quick := time.NewTimer(1500 * time.Millisecond) // longer than the pace of changes
		defer quick.Stop()
		select {
		case <-answered:
			return false
		case <-quick.C:
			return true
		}
	}
	waitUntil(t, "a viewer waits", waits)
	stop()
	if status := <-answered; status != http.StatusOK && status != http.StatusNoContent {
		t.Errorf("the viewer is answered %d when the process stops", status)
	}
	if strings.Contains(log.String(), "good order") {
		t.Errorf("the listener did not end in good order:\n%s", log.String())
	}
}

// In dev there is no token: the page is for this machine, and so are the jobs.
func TestLocalPage(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	jobs := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "jobs") })
	e := open(t, configureWith(t, db.AppURL, listenHere, push), engine.WithLocalPage(jobs))
	server := httptest.NewServer(e.Handler())
	t.Cleanup(server.Close)
	for path, want := range map[string]string{"/status": `data-access="local"`, "/status/facts": `"jobs_url":"/jobs/"`, "/jobs/": "jobs"} {
		if status, body := getAs(t, server.URL+path, ""); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %q, want 200 with %q", path, status, body, want)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Host = "evil.example.com"
		w := httptest.NewRecorder()
		e.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusMisdirectedRequest || strings.Contains(w.Body.String(), want) {
			t.Errorf("%s under another name: %d %q, want 421", path, w.Code, w.Body)
		}
	}
}
