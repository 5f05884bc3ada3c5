// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"example.com/bothy/engine/api"
)

// devProcess is an engine dev with a status page.
type devProcess struct {
	bin, config, page, database string
}

var (
	pageAddress     = regexp.MustCompile(`status page at (http://\S+)`)
	databaseAddress = regexp.MustCompile(databaseVariable + `='([^']*)'`)
)

// startProcess starts a command of the engine and waits until it says something. It is interrupted when the test
// ends.
func startProcess(t *testing.T, said *lastWords, env []string, until *regexp.Regexp, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(binary(t), "engine"), args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }() // the test looks at what it said
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT) // it may have ended
		eventually(t, "the engine has stopped", func() bool { return isClosed(ended) })
		if t.Failed() {
			t.Logf("the engine said:\n%s", said)
		}
	})
	eventually(t, "the engine says "+until.String(), func() bool {
		if isClosed(ended) {
			t.Fatalf("the engine ended:\n%s", said)
		}
		return until.MatchString(said.String())
	})
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// startDev starts engine dev on a configuration.
func startDev(t *testing.T, config string) devProcess {
	t.Helper()
	said := &lastWords{}
	startProcess(t, said, nil, databaseAddress, "dev", "--config", config)
	return devProcess{
		bin: binary(t), config: config,
		page: pageAddress.FindStringSubmatch(said.String())[1], database: databaseAddress.FindStringSubmatch(said.String())[1],
	}
}

// dev serves its page and River UI to this machine, and to nobody who comes by another name; it says where.
func TestDevServesThePage(t *testing.T) {
	t.Parallel()
	d := startDev(t, "../../consumers.yaml")
	base := strings.TrimSuffix(d.page, "/status")
	if !strings.HasPrefix(base, "http://127.0.0.1:") {
		t.Errorf("the page is at %s, want the loopback address", d.page)
	}
	for path, want := range map[string]string{
		"/status": `data-access="local"`, "/status/facts": `"jobs_url":"/jobs/"`, "/jobs/": "River", "/jobs/api/queues": `"name":"archive"`,
		"/readyz": `"ready": true`,
	} {
		eventually(t, path+" answers", func() bool {
			status, body, err := api.Ask(t.Context(), base+path)
			return err == nil && status == http.StatusOK && strings.Contains(string(body), want)
		})
		if path == "/readyz" {
			continue // tells nobody anything
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "evil.example.com"
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%s under another name: %d, want 421", path, response.StatusCode)
		}
	}
}
