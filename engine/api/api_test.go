// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/bothy/engine/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T, ready api.Readiness) (base string, stop func()) {
	t.Helper()
	s, err := api.Listen(t.Context(), api.Options{
		Address:   "127.0.0.1:0",
		Metrics:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics\n") }),
		Readiness: func() api.Readiness { return ready },
	})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Stop(ctx)
	}
	t.Cleanup(stop)
	return "http://" + s.Address(), stop
}

func TestPages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ready  api.Readiness
		status int
		body   string
	}{
		"ready":     {api.Readiness{Ready: true, Reasons: []api.Reason{}, Role: "all", Ends: map[string]string{"push": "idle"}}, 200, `{"ready":true,"reasons":[],"role":"all","ends":{"push":"idle"}}`},
		"not ready": {api.Readiness{Reasons: []api.Reason{api.Unreachable}, Role: "api"}, 503, `{"ready":false,"reasons":["database_unreachable"],"role":"api","ends":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, _ := listen(t, c.ready)
			for page, want := range map[string]struct {
				status int
				body   string
			}{
				"/metrics": {200, "metrics"}, "/healthz": {200, "alive"}, "/readyz": {c.status, c.body}, "/": {404, ""}, "/debug/pprof/": {404, ""},
			} {
				status, body, err := api.Ask(t.Context(), base+page)
				flat := strings.Join(strings.Fields(string(body)), "")
				if err != nil || status != want.status || want.body != "" && flat != want.body {
					t.Errorf("GET %s: %d %q, %v; want %d %q", page, status, flat, err, want.status, want.body)
				}
			}
			response, err := http.DefaultClient.Do(post(t, base+"/readyz"))
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			http.DefaultClient.CloseIdleConnections()
			if response.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("POST /readyz: %d, want 405", response.StatusCode)
			}
		})
	}
}

func post(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A client that connects and says nothing does not keep the process from stopping.
func TestStopDoesNotWaitForASilentClient(t *testing.T) {
	t.Parallel()
	base, stop := listen(t, api.Readiness{Ready: true})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n"); err != nil {
		t.Fatal(err)
	}
	stop()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection is still open: %v", err)
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		":9464": "http://127.0.0.1:9464/healthz", "0.0.0.0:9464": "http://127.0.0.1:9464/healthz", "[::]:9464": "http://[::1]:9464/healthz",
		"10.0.0.7:80": "http://10.0.0.7:80/healthz", "engine.example.com:9464": "http://engine.example.com:9464/healthz",
	} {
		if got, err := api.URL(listen, "/healthz"); err != nil || got != want {
			t.Errorf("URL(%q) = %q, %v; want %q", listen, got, err, want)
		}
	}
	if _, err := api.URL("nothing", "/"); err == nil {
		t.Error(`URL("nothing") gives no error`)
	}
}
