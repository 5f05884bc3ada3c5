// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/report"
)

// secret is what no report may show.
const secret = "hunter2"

// wantHidden renders what is found in a configuration and fails when a format shows the secret.
func wantHidden(t *testing.T, text string, lookup func(string) (string, bool), formats ...report.Format) {
	t.Helper()
	_, problems := config.Parse("consumers.yaml", []byte(text), lookup)
	if len(problems) == 0 {
		return
	}
	r := report.Report{
		Files:    []report.File{{Name: "consumers.yaml", Text: []byte(text), Shown: config.Shown, Consumers: -1}},
		Problems: problems,
	}
	for _, f := range formats {
		if got := report.Render(r, f); bytes.Contains(got, []byte(secret)) {
			t.Errorf("%s shows %s of\n%s\nas\n%s", f, secret, text, got)
		}
	}
}

// TestReportsHideSecrets breaks a configuration that holds a password in every line, in several ways: whatever is
// reported then, and wherever, the password is not shown.
func TestReportsHideSecrets(t *testing.T) {
	t.Parallel()
	urls := []string{
		"url: postgres://app:hunter2@db/shop", "url: 'host=db password=hunter2'", "url: host=db user=hunter2", "url: |\n    host=db\n    user=hunter2",
		"url: \"host=db\n    user=hunter2\"", "url: &u hunter2\n  admin_url: *u", "ulr: hunter2", "\"url\" : hunter2", "roles: {owner: a, url: hunter2}", "url: @hunter2", "url: [a, hunter2]",
		"url: {a: hunter2}", "url: # no\n    hunter2", "url: >-\n    hunter2\n\n    x", "url: \"${SET}hunter2\"", "listen_url:\n    - hunter2", "url: !!str hunter2",
		"url: !hunter2 x", "url: *hunter2", "<<: hunter2", "url hunter2", "url=hunter2", "url: &a hunter2\n  lock_timeout: *a", "url: &hunter2 x",
		"url: &a hunter2\n  restore_guard: *a", "url: &a hunter2\n  roles: *a", "roles: {owner: *app, password: *hunter2}",
	}
	breaks := []func(line string) string{
		func(string) string { return "" },
		func(line string) string { return line + "\n" + line },
		func(line string) string { return " " + line },
		func(line string) string { return strings.TrimPrefix(line, " ") },
		func(line string) string { return "\t" + line },
		func(line string) string { return strings.Replace(line, ":", "", 1) },
		func(line string) string { return strings.Replace(line, ": ", ": \"", 1) },
		func(line string) string { return strings.Replace(line, ": ", ": [", 1) },
		func(line string) string { return strings.Replace(line, ": ", ": {", 1) },
		func(line string) string { return line + "\n---" },
		func(line string) string { return strings.ReplaceAll(line, " ", "\u00a0") },
		func(line string) string { return line + " }" },
		func(line string) string { return line + ",x: [y" },
		func(line string) string { return "- " + line },
	}
	lookup := func(name string) (string, bool) { return "value", name == "SET" }
	for _, url := range urls {
		text := "version: 1\ndatabase:\n  schema: shop\n  " + url + "\n  restore_guard: on\nconsumers:\n  - name: archive\n    types: [a.*]\n    job: {kind: archive.append}\n    recipients: none\n"
		lines := strings.Split(text, "\n")
		for i := range lines {
			for _, broken := range breaks {
				changed := slices.Clone(lines)
				changed[i] = broken(lines[i])
				wantHidden(t, strings.Join(changed, "\n"), lookup, report.Text) // the only one that shows lines
			}
		}
	}
}

// What stands alone in place of a section, and what an alias brings from a secret key to an open one, is not shown.
func TestReportsHideSecretsElsewhere(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"database: hunter2\n", "hunter2\n", "database:\n  - hunter2\n", "consumers: hunter2\n", "consumers: [hunter2]\n",
		"database: {url: &a hunter2}\nconsumers:\n  - {name: *a, batch: *a, types: *a, job: *a, recipients: *a}\n",
		"database: {url: &a hunter2}\nconsumers:\n  - {name: *a, batch: 0, types: [*a, *a], job: {kind: *a}, recipients: {list: [*a, *a]}}\n",
		"x: &a hunter2\nlog: {level: *a}\n", "database: {url: *hunter2}\nconsumers: [*other, }\n",
	} {
		wantHidden(t, "version: 1\n"+text, nil, report.Formats()...)
		wantHidden(t, text, nil, report.Formats()...)
	}
	// One that is no secret is told.
	_, problems := config.Parse("consumers.yaml", []byte("version: 1\nconsumers:\n  - {name: aaa, types: [*orders], job: {kind: a.b}, recipients: none}\n"), nil)
	if !strings.Contains(problems.Error(), "*orders is an alias to YAML") {
		t.Errorf("an alias under an open key: got\n%v\nwant its name", problems)
	}
}

// TestReportsOfCasesHideSecrets does the same with every case file of the configuration.
func TestReportsOfCasesHideSecrets(t *testing.T) {
	t.Parallel()
	const value = "postgres://app:hunter2%@db.example.com/shop"
	files, err := filepath.Glob(filepath.Join("config", "testdata", "*", "consumers.yaml"))
	if err != nil || len(files) < 50 {
		t.Fatalf("found %d case files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		wantHidden(t, string(text), func(name string) (string, bool) { return value, strings.HasPrefix(name, "S") }, report.Formats()...)
	}
}

// An excerpt of a configuration shows what it can: a reader sees the line that is meant.
func TestReportsShowTheRest(t *testing.T) {
	t.Parallel()
	text := "version: 1\nconsumers:\n  - name: Archive\n    batch: 010\n    job: {kind: archive append, queue: slow}\n    recipients: {list: [alex, alex]}\n"
	_, problems := config.Parse("consumers.yaml", []byte(text), nil)
	got := string(report.Render(report.Report{Files: []report.File{{Name: "consumers.yaml", Text: []byte(text), Shown: config.Shown}}, Problems: problems}, report.Text))
	for n, line := range strings.Split(text, "\n")[2:6] {
		if want := fmt.Sprintf("    %d | %s\n", n+3, line); !strings.Contains(got, want) {
			t.Errorf("the text does not show %q:\n%s", want, got)
		}
	}
}
