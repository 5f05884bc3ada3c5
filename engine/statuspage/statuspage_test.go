// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"example.com/bothy/engine/statuspage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "correct-horse-battery-staple"

// newPage makes a page of a process with one consumer.
func newPage(t *testing.T, change func(*statuspage.Options)) *statuspage.Page {
	t.Helper()
	o := statuspage.Options{
		Access: statuspage.ByToken, Token: token, Version: "v1.2.3", Wide: "<svg id=\"w\"></svg>", Tall: "<svg id=\"t\"></svg>",
		Refusal: func() string { return "" },
		Facts: func() statuspage.Facts {
			return statuspage.Facts{Fresh: true, Consumers: []statuspage.Consumer{{Name: "push", Declared: true, State: statuspage.StateCurrent}}}
		},
	}
	if change != nil {
		change(&o)
	}
	p, err := statuspage.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// answer is what a request was answered.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends one request. Headers are written as name: value.
func ask(t *testing.T, p *statuspage.Page, method, url string, headers ...string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, url, nil)
	r.Host = "127.0.0.1:9464"
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		switch name {
		case "Host":
			r.Host = value
		case "From":
			r.RemoteAddr = value
		default:
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

const bearer = "Authorization: Bearer " + token

func TestAnswers(t *testing.T) {
	t.Parallel()
	noToken := func(o *statuspage.Options) { o.Token = "" }
	local := func(o *statuspage.Options) { o.Access, o.Token = statuspage.Local, "" }
	nobody := func(o *statuspage.Options) { o.Access = "" }
	worker := func(o *statuspage.Options) { o.Refusal = func() string { return "not here" } }
	for name, c := range map[string]struct {
		change      func(*statuspage.Options)
		method, url string
		headers     []string
		status      int
		kind, says  string
	}{
		"the page":                    {nil, "GET", "/status", nil, 200, "text/html; charset=utf-8", "<title>Bothy status</title>"},
		"the page, head":              {nil, "HEAD", "/status", nil, 200, "text/html; charset=utf-8", ""},
		"its style":                   {nil, "GET", "/status/page.css", nil, 200, "text/css; charset=utf-8", "prefers-color-scheme"},
		"its script":                  {nil, "GET", "/status/page.js", nil, 200, "text/javascript; charset=utf-8", "'use strict'"},
		"its icon":                    {nil, "GET", "/status/icon.svg", nil, 200, "image/svg+xml", "<svg"},
		"the facts":                   {nil, "GET", "/status/facts", []string{bearer}, 200, "application/json", `"name":"push"`},
		"the facts, other case":       {nil, "GET", "/status/facts", []string{"Authorization: bearer  " + token}, 200, "application/json", `"name":"push"`},
		"without a token":             {nil, "GET", "/status/facts", nil, 401, "text/plain; charset=utf-8", "send the token: Authorization: Bearer TOKEN\n"},
		"a wrong token":               {nil, "GET", "/status/facts", []string{"Authorization: Bearer wrong"}, 401, "text/plain; charset=utf-8", "the token is not that of http.admin_token\n"},
		"half a token":                {nil, "GET", "/status/facts", []string{bearer[:len(bearer)-1]}, 401, "text/plain; charset=utf-8", "the token is not"},
		"another scheme":              {nil, "GET", "/status/facts", []string{"Authorization: Basic " + token}, 401, "text/plain; charset=utf-8", "send the token"},
		"the token in the query":      {nil, "GET", "/status/facts?token=" + token, nil, 401, "text/plain; charset=utf-8", "send the token"},
		"no token in the file":        {noToken, "GET", "/status", nil, 404, "text/plain; charset=utf-8", "the status page needs http.admin_token in consumers.yaml\n"},
		"no token, facts":             {noToken, "GET", "/status/facts", []string{"Authorization: Bearer "}, 404, "text/plain; charset=utf-8", "http.admin_token"},
		"nobody":                      {nobody, "GET", "/status/facts", []string{bearer}, 421, "text/plain; charset=utf-8", ""},
		"another role":                {worker, "GET", "/status/facts", []string{bearer}, 404, "text/plain; charset=utf-8", "not here\n"},
		"POST":                        {nil, "POST", "/status/facts", []string{bearer}, 405, "", ""},
		"DELETE":                      {nil, "DELETE", "/status", nil, 405, "", ""},
		"OPTIONS, as CORS asks":       {nil, "OPTIONS", "/status/facts", []string{"Origin: https://example.com", "Access-Control-Request-Method: GET"}, 405, "", ""},
		"nothing there":               {nil, "GET", "/status/assets/page.html", nil, 404, "", ""},
		"local":                       {local, "GET", "/status/facts", nil, 200, "application/json", `"name":"push"`},
		"local by name":               {local, "GET", "/status/facts", []string{"Host: LocalHost:80"}, 200, "application/json", `"name":"push"`},
		"local, IPv6":                 {local, "GET", "/status/facts", []string{"Host: [::1]:80"}, 200, "application/json", `"name":"push"`},
		"local, without a port":       {local, "GET", "/status/facts", []string{"Host: 127.0.0.1"}, 200, "application/json", `"name":"push"`},
		"a name that points here":     {local, "GET", "/status/facts", []string{"Host: evil.example.com"}, 421, "text/plain; charset=utf-8", "this page is for this machine"},
		"a name that looks like here": {local, "GET", "/status", []string{"Host: 127.0.0.1.example.com:80"}, 421, "text/plain; charset=utf-8", "this page is for this machine"},
		"another machine's address":   {local, "GET", "/status", []string{"Host: 10.0.0.7:80"}, 421, "text/plain; charset=utf-8", "this page is for this machine"},
		"no host":                     {local, "GET", "/status", []string{"Host: "}, 421, "text/plain; charset=utf-8", "this page is for this machine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ask(t, newPage(t, c.change), c.method, c.url, c.headers...)
			got := r.body
			if r.status != c.status || c.kind != "" && r.header.Get("Content-Type") != c.kind || !strings.Contains(got, c.says) {
				t.Errorf("%s %s: %d %q %q, want %d %q with %q", c.method, c.url, r.status, r.header.Get("Content-Type"), got, c.status, c.kind, c.says)
			}
			wantGuarded(t, r)
			if challenge := r.header.Get("WWW-Authenticate"); (challenge == `Bearer realm="bothy"`) != (c.status == 401) {
				t.Errorf("WWW-Authenticate is %q with %d", challenge, c.status)
			}
		})
	}
}

// wantGuarded checks what every answer has, and what none has.
func wantGuarded(t *testing.T, r answer) {
	t.Helper()
	policy := r.header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "form-action 'none'", "base-uri 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q lacks %s", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is unsafe: %q", policy)
	}
	if r.header.Get("X-Content-Type-Options") != "nosniff" || r.header.Get("Referrer-Policy") != "no-referrer" || r.header.Get("Cache-Control") == "" {
		t.Errorf("headers %v", r.header)
	}
	for name := range r.header {
		if name == "Set-Cookie" || strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("the answer has %s", name)
		}
	}
}

// The page needs nothing from elsewhere and nothing inside itself that the policy would refuse.
func TestPageFitsItsPolicy(t *testing.T) {
	t.Parallel()
	p := newPage(t, nil)
	html := ask(t, p, "GET", "/status").body
	for _, want := range []string{`data-access="token"`, "v1.2.3", `<svg id="w"></svg>`, `<svg id="t"></svg>`, `<html lang="en"`, `name="viewport"`} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for _, no := range []string{`<style`, ` style=`, `<script>`, `javascript:`, `//cdn`} {
		if strings.Contains(html, no) {
			t.Errorf("the page has %s, which the policy refuses", no)
		}
	}
	if inline := regexp.MustCompile(`\son[a-z]+=`).FindString(html); inline != "" {
		t.Errorf("the page has a handler inside: %s", inline)
	}
	for _, name := range []string{"/status", "/status/page.css", "/status/page.js"} {
		text := ask(t, p, "GET", name).body
		if outside := regexp.MustCompile(`(https?:)?//[a-z0-9-]+\.[a-z]`).FindString(text); outside != "" {
			t.Errorf("%s speaks of %s", name, outside)
		}
		for _, sink := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("} {
			if strings.Contains(text, sink) {
				t.Errorf("%s uses %s: a name from the database could become markup", name, sink)
			}
		}
	}
}

// A browser that has a file asks whether it is still the same, and is not sent it again.
func TestFilesAreAskedAboutAgain(t *testing.T) {
	t.Parallel()
	p := newPage(t, nil)
	first := ask(t, p, "GET", "/status/page.js")
	tag := first.header.Get("Etag")
	if tag == "" || first.header.Get("Cache-Control") != "no-cache" {
		t.Errorf("headers %v, want a tag, and no-cache", first.header)
	}
	if again := ask(t, p, "GET", "/status/page.js", "If-None-Match: "+tag); again.status != http.StatusNotModified {
		t.Errorf("asked again: %d, want 304", again.status)
	}
	if facts := ask(t, p, "GET", "/status/facts", bearer); facts.header.Get("Cache-Control") != "no-store" {
		t.Errorf("facts: Cache-Control %q, want no-store", facts.header.Get("Cache-Control"))
	}
}

func TestForThisMachine(t *testing.T) {
	t.Parallel()
	behind := statuspage.ForThisMachine(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "jobs") }))
	for name, c := range map[string]struct {
		method, host, origin string
		status               int
	}{
		"a look":              {"GET", "127.0.0.1:80", "", 200},
		"its own page":        {"POST", "127.0.0.1:80", "http://127.0.0.1:80", 200},
		"a page of another":   {"POST", "127.0.0.1:80", "https://example.com", 403},
		"a name for this one": {"GET", "example.com", "", 421},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), c.method, "/jobs/", nil)
			r.Host = c.host
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			w := httptest.NewRecorder()
			behind.ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("%s of %s from %q: %d, want %d", c.method, c.host, c.origin, w.Code, c.status)
			}
		})
	}
}

func readFacts(t *testing.T, r answer) (f statuspage.Facts) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), &f); err != nil || r.status != http.StatusOK {
		t.Fatalf("facts: %d, %v\n%s", r.status, err, r.body)
	}
	return f
}
