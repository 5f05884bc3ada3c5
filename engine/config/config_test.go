// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Every value has a position, and a default has that of its nearest parent.
func TestAt(t *testing.T) {
	cfg := mustParse(t, "version: 1\nconsumers:\n  - name: archive\n    types: [order.*, \"äö\", b]\n    job: {kind: a.b}\n    recipients: {field: audience}\n")
	for path, want := range map[string]string{
		"version":                       "consumers.yaml:1:10",
		"consumers":                     "consumers.yaml:3:3",
		"consumers[0]":                  "consumers.yaml:3:5",
		"consumers[0].types[2]":         "consumers.yaml:4:28",
		"consumers[0].job.kind":         "consumers.yaml:5:17",
		"consumers[0].job.priority":     "consumers.yaml:5:10",
		"consumers[0].recipients.field": "consumers.yaml:6:25",
		"consumers[7].job":              "consumers.yaml:3:3",
		"database.schema":               "consumers.yaml:1:1",
		"":                              "consumers.yaml:1:1",
		"nonsense..[":                   "consumers.yaml:1:1",
	} {
		if got := cfg.At(path).String(); got != want {
			t.Errorf("At(%q) = %s, want %s", path, got, want)
		}
	}
}

// A consumer uses what it says, or what the section consumer says, or the default.
func TestDefaults(t *testing.T) {
	cfg := mustParse(t, "version: 1\nconsumer: {batch_size: 7, poll_interval: 2s}\nconsumers:\n"+
		"  - {name: one, batch: 3, job: {kind: a.b}, recipients: none}\n  - {name: two, max_jobs_per_round: 9, job: {kind: a.b}, recipients: none}\n")
	var got [][3]int64
	for _, c := range cfg.Consumers {
		got = append(got, [3]int64{int64(c.Batch), int64(c.PollInterval / time.Second), int64(c.MaxJobsPerRound)})
	}
	if diff := cmp.Diff([][3]int64{{3, 2, 20000}, {7, 2, 9}}, got); diff != "" {
		t.Errorf("batch, poll interval in seconds, jobs (-want +got)\n%s", diff)
	}
	want := Database{
		Schema: "bothy", RestoreGuard: "on", StatementTimeout: 30 * time.Second, LockTimeout: 5 * time.Second,
		IdleInTxTimeout: 30 * time.Second, ListenReconnectBackoffCap: 30 * time.Second,
	}
	if diff := cmp.Diff(want, cfg.Database); diff != "" {
		t.Errorf("database (-want +got)\n%s", diff)
	}
	if want := (Log{Level: "info", Format: "text"}); cfg.Log != want {
		t.Errorf("log: got %v, want %v", cfg.Log, want)
	}
	if cfg.Sync != (Sync{EventRetention: 720 * time.Hour, RetentionPolicy: "skip", EventLogPartitionSize: 1_000_000, PartitionsAhead: 4, Notify: "on"}) || cfg.Shutdown.TotalTimeout != 25*time.Second || cfg.Jobs != (Jobs{Schema: "public"}) {
		t.Errorf("got %+v %+v %+v", cfg.Sync, cfg.Shutdown, cfg.Jobs)
	}
}

// A secret stays hidden however it is printed.
func TestSecret(t *testing.T) {
	cfg := mustParse(t, good+"database: {url: \"postgres://app:hunter2@h/db\"}\n")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if got := fmt.Sprintf(verb, cfg.Database.URL); strings.Contains(got, "hunter2") {
			t.Errorf("%s shows the secret: %s", verb, got)
		}
		if got := fmt.Sprintf(verb, cfg.Database); strings.Contains(got, "hunter2") {
			t.Errorf("%s of the section shows the secret: %s", verb, got)
		}
	}
	if cfg.Database.Admin() != cfg.Database.URL || cfg.Database.Listen() != cfg.Database.URL {
		t.Error("an absent admin_url or listen_url is not url")
	}
}
