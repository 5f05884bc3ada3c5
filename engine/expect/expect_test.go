// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/round"
)

var update = flag.Bool("update", false, "rewrite the want.txt files of testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// subject is what the cases are about: testdata/consumers.yaml, with one of its two handlers.
func subject(t testing.TB) Subject {
	t.Helper()
	text, err := os.ReadFile("testdata/consumers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, problems := config.Parse("consumers.yaml", text, nil)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return Subject{Config: cfg, Consumers: cfg.Rounds(), Handlers: []string{"mentions"}}
}

func everything(string) bool { return true }

// scripted is a stage that answers as the cases want it. The real one is tested with the command.
//
//	a query:   each row's person is a recipient of each event; the person fails makes the rule fail
//	a handler: robin is the recipient, and a payload {"own": KIND} makes a job of its own
//	a row with the column persn, an event whose payload is a zero byte and a script with the type txt are refused
type scripted struct{}

func (scripted) Setup(_ context.Context, sql string) error {
	switch {
	case strings.Contains(sql, "txt"):
		return &RefusedError{Row: -1, Event: -1, At: strings.Index(sql, "txt"), What: `type "txt" does not exist`}
	case strings.Contains(sql, "SOMEWHERE"):
		return &RefusedError{Row: -1, Event: -1, At: -1, What: "it fails somewhere"}
	case strings.Contains(sql, "unreachable"):
		return errors.New("no answer")
	}
	return nil
}

func (scripted) Rehearse(_ context.Context, rows []Row, events []round.Event, consumers []string) ([]Answer, error) {
	var people []string
	for i, row := range rows {
		var columns struct{ Person, Persn string }
		if err := json.Unmarshal(row.Values, &columns); err != nil {
			return nil, err
		}
		if columns.Persn != "" {
			return nil, &RefusedError{Row: i, Event: -1, At: -1, What: `column "persn" of relation "watchers" does not exist`}
		}
		people = append(people, columns.Person)
	}
	for i, e := range events {
		if string(e.Payload) == `"\u0000"` {
			return nil, &RefusedError{Row: -1, Event: i, At: -1, What: `unsupported Unicode escape sequence; \u0000 cannot be converted to text`}
		}
	}
	answers := make([]Answer, len(consumers))
	for i, name := range consumers {
		answers[i] = answer(name, people, events)
	}
	return answers, nil
}

func answer(consumer string, people []string, events []round.Event) Answer {
	a := Answer{At: -1}
	for _, e := range events {
		if consumer == "mentions" {
			a.Targets = append(a.Targets, round.Target{Seq: e.Seq, Recipient: "robin"})
			var payload struct{ Own string }
			if json.Unmarshal(e.Payload, &payload) == nil && payload.Own != "" {
				a.Own = append(a.Own, OwnJob{Job: round.Job{Kind: payload.Own, Queue: "default"}})
			}
			continue
		}
		for _, person := range people {
			if person == "fails" {
				return Answer{Err: errors.New("the rule cannot decide\nfix: help it"), At: 14}
			}
			a.Targets = append(a.Targets, round.Target{Seq: e.Seq, Recipient: person})
		}
	}
	return a
}

func openScripted(context.Context) (Stage, error) { return scripted{}, nil }

// outcome is all that is said about the test file of a folder.
func outcome(t testing.TB, folder string, s Subject) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, Name))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	file, problems := parse(Name, text, s, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(folder, name)) })
	if len(problems) > 0 {
		fmt.Fprintln(&b, problems.Error())
	}
	if file != nil {
		report := file.Run(t.Context(), everything, openScripted)
		if report.Err != nil {
			fmt.Fprintln(&b, report.Err)
		}
		report.Write(&b, true)
		fmt.Fprintf(&b, "%s\n%s\n", Summary([]Report{report}), Cover(s, []*File{file}))
	}
	return b.String()
}

// TestCases compares everything that is said about each file of testdata. A folder is named after the code
// that it shows, or fine, or fail for tests that do not pass; what follows a dot tells several apart.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*/" + Name)
	if err != nil || len(files) == 0 {
		t.Fatalf("no case files: %v", err)
	}
	s := subject(t)
	for _, file := range files {
		folder := filepath.Dir(file)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			got := outcome(t, folder, s)
			wantFile := filepath.Join(folder, "want.txt")
			if *update {
				if err := os.WriteFile(wantFile, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(wantFile)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s\nif this is meant, run: go test ./engine/expect -run TestCases -update", folder, diff)
			}
			code, _, _ := strings.Cut(filepath.Base(folder), ".")
			switch code {
			case "fine":
				if !strings.Contains(got, " passed\ncoverage") {
					t.Errorf("%s does not pass:\n%s", folder, got)
				}
			case "fail":
				if !strings.Contains(got, " failed\ncoverage") {
					t.Errorf("%s does not fail:\n%s", folder, got)
				}
			default:
				if !strings.Contains(got, "["+code+"]") {
					t.Errorf("%s: the code %s does not occur in\n%s", folder, code, got)
				}
			}
		})
	}
}

// A test file whose consumers need no database gets none.
func TestRunOpensNoStageUnasked(t *testing.T) {
	file, problems := Parse(Name, []byte(`version: 1
tests:
  - {name: pure, consumers: [push, index, archive], events: [{type: message.created, audience: [alex]}], jobs: [{kind: notify.push_send, recipient: alex}, {kind: archive.append}]}
  - {name: no event for the query, consumers: [notify, mentions], events: [{type: user.left}], jobs: none}
  - {name: left out, consumers: [notify], events: [{type: order.paid}], jobs: none}
`), subject(t))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	opened := 0
	open := func(context.Context) (Stage, error) { opened++; return nil, errors.New("no stage") }
	report := file.Run(t.Context(), func(name string) bool { return name != "left out" }, open)
	if ran, bad := Count([]Report{report}); opened != 0 || ran != 2 || bad != 0 {
		t.Errorf("opened %d stages, %d tests ran, %d failed: %+v; want 0, 2 and 0", opened, ran, bad, report)
	}
	report = file.Run(t.Context(), everything, open)
	if ran, bad := Count([]Report{report}); opened != 1 || ran != 3 || bad != 1 || report.Results[2].Verdict != Broken {
		t.Errorf("opened %d stages, %d tests ran, %d failed: %+v; want 1, 3 and 1", opened, ran, bad, report)
	}
}

// An end of the context ends the run between two tests.
func TestRunEndsWithItsContext(t *testing.T) {
	file, problems := Load("testdata/fine.rules/"+Name, subject(t))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	ctx, cancel := context.WithCancel(t.Context())
	report := file.Run(ctx, func(name string) bool {
		if name == "list" {
			cancel()
		}
		return true
	}, openScripted)
	if len(report.Results) != 1 {
		t.Errorf("%d tests ran, want the one before the end of the context", len(report.Results))
	}
}

// What a wanted job leaves open can fit several: each finds one as long as that is possible.
func TestAssign(t *testing.T) {
	job := func(queue string, priority int) Job {
		return Job{Consumer: "mentions", Kind: "own", Queue: queue, Priority: priority}
	}
	want := func(jobs ...Job) []wanted {
		list := make([]wanted, len(jobs))
		for i, j := range jobs {
			list[i].Job = j
		}
		return list
	}
	for name, tt := range map[string]struct {
		want []wanted
		got  []Job
		pair []int
	}{
		"each its own":          {want(job("a", 1), job("b", 1)), []Job{job("b", 1), job("a", 1)}, []int{1, 0}},
		"the open one gives up": {want(job("", 0), job("a", 0)), []Job{job("a", 1), job("b", 1)}, []int{1, 0}},
		"in a chain":            {want(job("", 0), job("a", 0), job("", 1)), []Job{job("a", 1), job("b", 1), job("c", 2)}, []int{2, 0, 1}},
		"one too many":          {want(job("a", 0), job("a", 0)), []Job{job("a", 1), job("b", 1)}, []int{0, -1}},
		"nothing":               {want(job("a", 0)), nil, []int{-1}},
	} {
		if diff := cmp.Diff(tt.pair, assign(tt.want, tt.got)); diff != "" {
			t.Errorf("%s: assign(%v, %v) (-want +got):\n%s", name, tt.want, tt.got, diff)
		}
	}
}

// A slip is shown beside the job that has it, whatever the order.
func TestClosest(t *testing.T) {
	job := func(recipient, queue string, attempts int) Job {
		return Job{Consumer: "push", Kind: "a.b", Queue: queue, Recipient: recipient, MaxAttempts: attempts}
	}
	want := []wanted{{Job: job("lee", "mail", 5)}, {Job: job("kim", "male", 6)}, {Job: job("sam", "mail", 5)}}
	got := []Job{job("kim", "mail", 5), job("sma", "mail", 5)}
	pairs := closest(want, []int{0, 1, 2}, got, []bool{true, true})
	// kim is kim in spite of two slips; the other job is like lee and like sam, and the first of them has it
	if diff := cmp.Diff(map[int]int{1: 0, 0: 1}, pairs); diff != "" {
		t.Errorf("closest(%v, %v) (-want +got):\n%s", want, got, diff)
	}
}

// The text of a job is read back as the job, whatever its recipient.
func TestShapeText(t *testing.T) {
	for recipient, want := range map[string]string{
		"alex": "alex", "1": `"1"`, "null": `"null"`, "Yes": `"Yes"`, "a b": `"a b"`, "a\"b": `"a\"b"`, "a\nb": `"a\nb"`,
		"alex@example.com": "alex@example.com", "<zoë>": `"<zoë>"`, "-": `"-"`, "#1": `"#1"`, "a:b": `"a:b"`, "0x1F": `"0x1F"`, ".5": `".5"`,
	} {
		got := shape{}.text(Job{Consumer: "push", Kind: "a.b", Recipient: recipient})
		if whole := "{consumer: push, kind: a.b, recipient: " + want + "}"; got != whole {
			t.Errorf("recipient %q: got %s, want %s", recipient, got, whole)
		}
	}
}
