// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/problem"
)

// good is a file without problems; the tests add to it.
const good = `version: 1
consumers:
  - name: archive
    job: {kind: archive.append}
    recipients: none
`

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	cfg, problems := Parse("consumers.yaml", []byte(text), env)
	if err := problems.Err(); err != nil {
		t.Fatalf("problems in\n%s\n%v", text, err)
	}
	return cfg
}

// places gives line:col [code] of each problem.
func places(problems problem.List) []string {
	var got []string
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%d:%d %s", p.At.Line, p.At.Col, p.Code))
	}
	return got
}

func wantPlaces(t *testing.T, text string, want ...string) problem.List {
	t.Helper()
	_, problems := Parse("consumers.yaml", []byte(text), env)
	if diff := cmp.Diff(want, places(problems)); diff != "" {
		t.Errorf("input:\n%s\n(-want +got)\n%s\n%v", text, diff, problems)
	}
	return problems
}

// consumerWith is a file whose only consumer has one more line.
func consumerWith(line string) string { return good + "    " + line + "\n" }

// TestCase01UnquotedOff: a word switches the guard, and only a word of the list.
func TestCase01UnquotedOff(t *testing.T) {
	for text, want := range map[string]bool{"off": false, `"off"`: false, "'on'": true, "on": true} {
		if got := mustParse(t, good+"database: {restore_guard: "+text+"}\n").Database.Guarded(); got != want {
			t.Errorf("restore_guard: %s: guarded %v, want %v", text, got, want)
		}
	}
	if !mustParse(t, good).Database.Guarded() {
		t.Error("without restore_guard the guard is off")
	}
	for _, text := range []string{"false", "no", "n", "0", "Off", "OFF", `"false"`, "offf", "disabled"} {
		problems := wantPlaces(t, good+"database:\n  restore_guard: "+text+"\n", "7:18 bad-word")
		if len(problems) == 1 && !strings.Contains(problems[0].Fix, "on or off") {
			t.Errorf("restore_guard: %s: the fix %q does not list the words", text, problems[0].Fix)
		}
	}
}

// TestCase03NumbersInOddSpellings: a count is plain digits, in range.
func TestCase03NumbersInOddSpellings(t *testing.T) {
	for _, text := range []string{
		"0100", "08", "1e3", "1_000", "-1", "+1", "99999999999999999999", "0", "10001", "0x1F", "0o100", "0b11", "1.5", "1.0",
		`"100"`, "'100'", ".inf", ".nan", "1e", "1:30", "true", "2001-01-01", "1 000", "１００", "!!int 5",
	} {
		code := "bad-count"
		if strings.HasPrefix(text, "!!") {
			code = "yaml-tag"
		}
		wantPlaces(t, consumerWith("batch: "+text), "6:12 "+code)
	}
	for text, want := range map[string]int{"1": 1, "100": 100, "10000": 10000, "${NUMBER}": 250, `"${NUMBER}"`: 250} {
		if got := mustParse(t, consumerWith("batch: "+text)).Consumers[0].Batch; got != want {
			t.Errorf("batch: %s: got %d, want %d", text, got, want)
		}
	}
}

// TestCase05DurationsWithoutAUnit: a duration has a unit and is in range.
func TestCase05DurationsWithoutAUnit(t *testing.T) {
	for _, text := range []string{
		"5", `"5"`, "0s", "-5s", "1d", "9223372036854775807s", "1ns", "9ms", "61m", "5 s", "0.5", "s", "5x", "1h1", "1.5.5s", "∞", "1h 5m",
	} {
		wantPlaces(t, consumerWith("poll_interval: "+text)+"consumer: {pending_alert_after: 2h}\n", "6:20 bad-duration")
	}
	for text, want := range map[string]time.Duration{
		"5s": 5 * time.Second, "1.5s": 1500 * time.Millisecond, `"10ms"`: 10 * time.Millisecond, "1h": time.Hour, "1m30s": 90 * time.Second,
	} {
		if got := mustParse(t, consumerWith("poll_interval: "+text)+"consumer: {pending_alert_after: 2h}\n").Consumers[0].PollInterval; got != want {
			t.Errorf("poll_interval: %s: got %v, want %v", text, got, want)
		}
	}
	problems := wantPlaces(t, consumerWith("poll_interval: 5"), "6:20 bad-duration")
	if len(problems) == 1 && !strings.Contains(problems[0].Fix, "write 5s") {
		t.Errorf("the fix of a bare 5 is %q", problems[0].Fix)
	}
}

// TestCase06MisspelledKeys: a misspelled key is named with the nearest known one, and all are listed in one run.
func TestCase06MisspelledKeys(t *testing.T) {
	text := `version: 1
restore_gaurd: off
database: {Restore_Guard: off}
consumers:
  - {name: one, job: {kind: a.b}, recipients: none}
  - {name: two, job: {kind: c.d}, recipients: none}
  - name: three
    bacth: 100
    job: {kind: e.f}
    recipients: none
`
	problems := wantPlaces(t, text, "2:1 unknown-key", "3:12 unknown-key", "8:5 unknown-key")
	for i, near := range []string{"database.restore_guard", "restore_guard", "batch"} {
		if i < len(problems) && !strings.Contains(problems[i].Fix, near) {
			t.Errorf("%v does not name %s", problems[i], near)
		}
	}
}

// TestCase09DuplicatesAndMerges: duplicates name both places; a merge works, and the own key wins.
func TestCase09DuplicatesAndMerges(t *testing.T) {
	problems := wantPlaces(t, consumerWith("batch: 5\n    batch: 5"), "7:5 duplicate-key")
	if len(problems) == 1 && problems[0].Also.Line != 6 {
		t.Errorf("the other place is %v, want line 6", problems[0].Also)
	}
	cfg := mustParse(t, `version: 1
consumers:
  - &first
    name: first
    batch: 7
    job: &job {kind: a.b, max_attempts: 3}
    recipients: {list: [alex]}
  - <<: *first
    name: second
    batch: 9
    job: {<<: *job, kind: c.d}
  - name: third
    <<: [{batch: 1, job: *job}, *first]
`)
	want := []Consumer{
		{Name: "first", Batch: 7, Job: Job{Kind: "a.b", MaxAttempts: 3}},
		{Name: "second", Batch: 9, Job: Job{Kind: "c.d", MaxAttempts: 3}},
		{Name: "third", Batch: 1, Job: Job{Kind: "a.b", MaxAttempts: 3}},
	}
	for i := range want {
		want[i].PollInterval, want[i].MaxJobsPerRound, want[i].PendingAlertAfter = 5*time.Second, 20000, 15*time.Minute
		want[i].OnFailure = "stall"
		want[i].Job.Queue, want[i].Job.Priority = "default", 1
		want[i].Recipients = Recipients{Rule: RuleList, List: []string{"alex"}}
	}
	if diff := cmp.Diff(want, cfg.Consumers); diff != "" {
		t.Errorf("merged consumers (-want +got)\n%s", diff)
	}
	other := "  - {name: %s, job: {kind: archive.append}, recipients: none}\n"
	problems = wantPlaces(t, good+fmt.Sprintf(other, "archive"), "6:12 duplicate-name")
	if len(problems) == 1 && (problems[0].Also.Line != 3 || problems[0].Also.Col != 11) {
		t.Errorf("the other name is at %v, want 3:11", problems[0].Also)
	}
	wantPlaces(t, good+fmt.Sprintf(other, `"Archive "`), "6:12 bad-name")
	// One job kind, two consumers: allowed, and said.
	mustParse(t, good+fmt.Sprintf(other, "archive-two"))
	wantPlaces(t, good+fmt.Sprintf(other, "archive-two"), "6:37 same-kind")
	// A wrong value that two consumers merge is wrong in one place.
	wantPlaces(t, "version: 1\nconsumers:\n  - &a {name: one, batch: 0, job: {kind: a.b}, recipients: none}\n  - {<<: *a, name: two}\n", "3:27 bad-count")
}

// TestCase11BlanksAndMarks: what an editor or a paste leaves behind.
func TestCase11BlanksAndMarks(t *testing.T) {
	want := mustParse(t, good)
	for _, text := range []string{"\ufeff" + good, strings.ReplaceAll(good, "\n", "\r\n"), strings.ReplaceAll(good, "\n", "\r")} {
		got := mustParse(t, text)
		if diff := cmp.Diff(want.Consumers, got.Consumers); diff != "" {
			t.Errorf("%q (-want +got)\n%s", text, diff)
		}
		if at := got.At("consumers[0].job.kind"); at.Line != 4 || at.Col != 17 {
			t.Errorf("%q: the kind is at %v, want 4:17", text, at)
		}
	}
	for text, says := range map[string][2]string{
		good + "log:\n\tlevel: info\n":                             {"7:1 tab-indentation", "tab"},
		good + "database:\n  restore_guard:\u00a0off\n":            {"7:17 odd-blank", "non-breaking space (U+00A0)"},
		good + "database:\n  restore_guard:\u00a0off\n  schema: a": {"7:17 odd-blank", "non-breaking space (U+00A0)"},
		good + "\ufeff" + good:                                     {"6:1 byte-order-mark", "byte-order mark"},
	} {
		problems := wantPlaces(t, text, says[0])
		if len(problems) > 0 && !strings.Contains(problems[0].What, says[1]) {
			t.Errorf("%q: %q does not name the %s", text, problems[0].What, says[1])
		}
	}
}

// TestCase12DollarInAPassword: only ${NAME} is expanded, after parsing, once, in values; and no message shows a password.
func TestCase12DollarInAPassword(t *testing.T) {
	nasty := "host=db password='p$w0rd ${NUMBER} # : % \" \n ]' user=app"
	lookup := func(name string) (string, bool) {
		switch name {
		case "DB_URL":
			return nasty, true
		case "w0rd", "", "$":
			return "eaten", true
		default:
			return env(name)
		}
	}
	text := good + `database:
  url: ${DB_URL}
  admin_url: postgres://u:p%40s$w0rd@h/db
  listen_url: "postgres://u:a$$b@h1:5432,h2:5433/db"
`
	cfg, problems := Parse("consumers.yaml", []byte(text), lookup)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := []string{nasty, "postgres://u:p%40s$w0rd@h/db", "postgres://u:a$$b@h1:5432,h2:5433/db"}
	got := []string{cfg.Database.URL.Reveal(), cfg.Database.AdminURL.Reveal(), cfg.Database.ListenURL.Reveal()}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	problems = wantPlaces(t, good+"database:\n  url: ${UNSET}\n", "7:8 unset-variable")
	if len(problems) == 1 && !strings.Contains(problems[0].What, "UNSET") {
		t.Errorf("%v does not name the variable", problems[0])
	}
	wantPlaces(t, strings.ReplaceAll(good, "archive.append", `"${DB_URL}"`), "4:17 unset-variable")
	wantPlaces(t, good+"${NUMBER}: 5\n", "6:1 unknown-key")
	wantPlaces(t, good+"database: {url: \"${UNSET}${UNSET_TOO}\"}\n", "6:17 unset-variable", "6:17 unset-variable")
	for _, url := range []string{"${SECRET}", "mysql://app:hunter2@h/db", "hunter2", "postgres://app:hunter2%@h/db", "postgres://app:hunter2@h:port/db", "[hunter2]", `"\0hunter2=1"`} {
		_, problems := Parse("consumers.yaml", []byte(good+"database:\n  url: "+url+"\n"), env)
		if problems.Errors() == 0 || strings.Contains(problems.Error(), "hunter2") {
			t.Errorf("url: %s: a problem must not show the password, got\n%v", url, problems)
		}
	}
}

// Without lookup the file is checked as it stands, and what a variable would give is taken as good.
func TestOffline(t *testing.T) {
	text := strings.ReplaceAll(good, "archive.append", `"${KIND}"`) + "    batch: ${BATCH}\ndatabase: {url: \"${BOTHY_DATABASE_URL}\"}\n"
	cfg, problems := Parse("consumers.yaml", []byte(text), nil)
	if problems.Errors() > 0 || cfg == nil {
		t.Fatalf("input:\n%s\ngot %v", text, problems)
	}
	if diff := cmp.Diff([]string{"4:17 unset-variable", "6:12 unset-variable", "7:17 unset-variable"}, places(problems)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := cfg.Consumers[0]; got.Batch != 100 || got.Job.Kind != "${KIND}" {
		t.Errorf("got batch %d and kind %q, want the default and the text as written", got.Batch, got.Job.Kind)
	}
}

// TestCase14ZeroIsNotAbsent: an explicit zero or false is told apart from a key that is missing, and no message speaks of tags.
func TestCase14ZeroIsNotAbsent(t *testing.T) {
	if got := mustParse(t, good+"jobs: {migrate: false}\n"); got.Jobs.Migrate {
		t.Error("migrate: false was read as true")
	}
	if got := mustParse(t, good).Database.PoolMaxConns; got != 0 {
		t.Errorf("absent pool_max_conns is %d, want 0", got)
	}
	var said problem.List
	said = append(said, wantPlaces(t, good+"database: {pool_max_conns: 0}\n", "6:28 bad-count")...)
	said = append(said, wantPlaces(t, consumerWith("batch: 0"), "6:12 bad-count")...)
	said = append(said, wantPlaces(t, strings.ReplaceAll(good, "append}", "append, max_attempts: 0}"), "4:47 bad-count")...)
	said = append(said, wantPlaces(t, consumerWith("poll_interval: 0s"), "6:20 bad-duration")...)
	said = append(said, wantPlaces(t, strings.ReplaceAll(good, "kind: archive.append", ""), "4:10 missing-key")...)
	said = append(said, wantPlaces(t, good+"database: {environment: ''}\n", "6:25 empty-value")...)
	for _, p := range said {
		if text := p.String(); strings.Contains(text, "tag") || strings.Contains(text, "required") || strings.Contains(text, "Config") {
			t.Errorf("a message speaks of the program: %s", text)
		}
	}
}

// TestCase15DeepEntries: the last entry of a list is checked like the first, at its place.
func TestCase15DeepEntries(t *testing.T) {
	entry := "  - {name: c-%[1]d, job: {kind: a.%[1]d}, recipients: {list: [alex, sam]}}\n"
	text := "version: 1\nconsumers:\n" + fmt.Sprintf(entry, 1) + fmt.Sprintf(entry, 2) +
		"  - {name: c-3, job: {kind: a b, priority: 9}, recipients: {list: [alex, \"\"]}}\ndatabase:\n  roles: {producers: [shop, pg_x]}\n"
	problems := wantPlaces(t, text, "5:29 bad-kind", "5:44 bad-count", "5:74 empty-value", "7:29 bad-role")
	for i, path := range []string{"consumers[2].job.kind", "consumers[2].job.priority", "consumers[2].recipients.list[1]", "database.roles.producers[1]"} {
		if i < len(problems) && !strings.HasPrefix(problems[i].What, path+" ") {
			t.Errorf("%q does not begin with the path %s", problems[i].What, path)
		}
	}
}

// Twelve mistakes, one in each block of the file, are twelve problems in one run, each in its place.
func TestTwelveMistakes(t *testing.T) {
	problems := wantPlaces(t, `version: 1
databse: {}
database:
  url: "mysql://db.example.com/shop"
  roles: {producers: [shop, shop]}
sync: {event_log_partition_size: 1_000}
consumer: {batch_size: 1e3}
jobs:
  migrate: yes
shutdown: {total_timeout: 25}
log: {level: warning}
consumers:
  - {name: archive, job: {kind: archive.append}, recipients: none}
  - name: Orders
    types: [order.*, ""]
    job: {kind: orders.notify, priority: 5}
    recipients:
      feild: audience
`, "2:1 unknown-key", "4:8 bad-url", "5:29 duplicate-entry", "6:34 bad-count", "7:24 bad-count", "9:12 bad-switch",
		"10:27 bad-duration", "11:14 bad-word", "14:11 bad-name", "15:22 empty-value", "16:42 bad-count", "18:7 unknown-key")
	if len(problems) != 12 {
		t.Errorf("got %d problems, want 12", len(problems))
	}
}

// Before a run, only what is not set is left unchecked: other variables are replaced and checked.
func TestPreview(t *testing.T) {
	text := strings.ReplaceAll(good, "archive.append", `"${KIND}"`) + "    batch: ${NUMBER}\n    poll_interval: ${WORD}\n"
	_, problems := Preview("consumers.yaml", []byte(text), env)
	if diff := cmp.Diff([]string{"4:17 unset-variable", "7:20 bad-duration"}, places(problems)); diff != "" {
		t.Fatalf("(-want +got)\n%s\n%v", diff, problems)
	}
	if problems[0].Severity != problem.Warning || !strings.Contains(problems[0].What, "KIND, which is not set here,") {
		t.Errorf("got %v, want a warning that KIND is not set here", problems[0])
	}
	cfg, problems := Preview("consumers.yaml", []byte(strings.ReplaceAll(text, "${WORD}", "5s")), env)
	if cfg == nil || cfg.Consumers[0].Batch != 250 || cfg.Consumers[0].Job.Kind != "${KIND}" {
		t.Errorf("got %v, want the batch of the variable and the kind as written: %v", cfg, problems)
	}
}
