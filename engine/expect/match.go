// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"example.com/bothy/engine/problem"
)

// Job is a job as a test sees it.
type Job struct {
	Consumer    string
	Event       int // its number in the test, from 1; 0 when a handler's own job names none
	Kind        string
	Queue       string
	Recipient   string
	MaxAttempts int
	Priority    int
}

// wanted is a job that a test expects. A zero Queue, MaxAttempts or Priority is not compared.
type wanted struct {
	Job
	at problem.Position
}

// differs names the fields in which a job is not the wanted one.
func (w wanted) differs(got Job) []string {
	var fields []string
	note := func(name string, differs bool) {
		if differs {
			fields = append(fields, name)
		}
	}
	note("consumer", w.Consumer != got.Consumer)
	note("kind", w.Kind != got.Kind)
	note("queue", w.Queue != "" && w.Queue != got.Queue)
	note("recipient", w.Recipient != got.Recipient)
	note("event", w.Event != got.Event)
	note("max_attempts", w.MaxAttempts != 0 && w.MaxAttempts != got.MaxAttempts)
	note("priority", w.Priority != 0 && w.Priority != got.Priority)
	return fields
}

// judge compares the jobs that were created with the expected ones, each against one.
func (t *test) judge(got []Job) Result {
	taken := assign(t.jobs, got)
	var missing []int
	unexpected := make([]bool, len(got))
	for i := range got {
		unexpected[i] = true
	}
	for i, j := range taken {
		if j < 0 {
			missing = append(missing, i)
		} else {
			unexpected[j] = false
		}
	}
	extra := 0
	for _, yes := range unexpected {
		if yes {
			extra++
		}
	}
	if len(missing) == 0 && extra == 0 {
		return Result{Verdict: Passed}
	}
	result := Result{Verdict: Failed, At: t.expectAt, What: counted(len(missing), extra)}
	if len(missing) > 0 {
		result.At = t.jobs[missing[0]].at
	}
	result.Details = t.diff(missing, unexpected, got)
	return result
}

func counted(missing, extra int) string {
	var parts []string
	if missing > 0 {
		parts = append(parts, fmt.Sprintf("%d expected %s missing", missing, titled("job is", "jobs are", missing)))
	}
	if extra > 0 {
		parts = append(parts, fmt.Sprintf("%d %s not expected", extra, titled("job is", "jobs are", extra)))
	}
	return strings.Join(parts, ", ")
}

// assign gives each wanted job one that was created, or -1. What a wanted job leaves open may fit several, so
// an earlier choice is changed when that lets one more find its job.
func assign(want []wanted, got []Job) []int {
	owner := make([]int, len(got))
	for j := range owner {
		owner[j] = -1
	}
	var place func(i int, tried []bool) bool
	place = func(i int, tried []bool) bool {
		for j := range got {
			if tried[j] || len(want[i].differs(got[j])) > 0 {
				continue
			}
			tried[j] = true
			if owner[j] < 0 || place(owner[j], tried) {
				owner[j] = i
				return true
			}
		}
		return false
	}
	taken := make([]int, len(want))
	for i := range want {
		taken[i] = -1
		place(i, make([]bool, len(got)))
	}
	for j, i := range owner {
		if i >= 0 {
			taken[i] = j
		}
	}
	return taken
}

// diff shows each missing job, with the one that was created in its place when there is one like it, and then
// the other unexpected ones.
func (t *test) diff(missing []int, unexpected []bool, got []Job) []string {
	var out []string
	shape := t.shape()
	pairs := closest(t.jobs, missing, got, unexpected)
	for _, i := range missing {
		w := t.jobs[i]
		out = append(out, fmt.Sprintf("- %s   # line %d", shape.text(w.Job), w.at.Line))
		near, ok := pairs[i]
		if !ok {
			continue
		}
		unexpected[near] = false
		out = append(out, fmt.Sprintf("+ %s   # differs in %s", shape.text(got[near]), strings.Join(w.differs(got[near]), ", ")))
	}
	rest := make([]Job, 0, len(got))
	for j := range got {
		if unexpected[j] {
			rest = append(rest, got[j])
		}
	}
	slices.SortStableFunc(rest, func(a, b Job) int { return cmp.Compare(a.Event, b.Event) })
	for _, j := range rest {
		out = append(out, "+ "+shape.text(j))
	}
	return out
}

// closest pairs missing jobs with unexpected ones that are like them, the most alike first, so that a slip is
// shown beside the job that has it.
func closest(want []wanted, missing []int, got []Job, unexpected []bool) map[int]int {
	type pair struct{ missing, got, distance int }
	var all []pair
	for _, i := range missing {
		for j := range got {
			if unexpected[j] && like(want[i], got[j]) {
				all = append(all, pair{i, j, want[i].distance(got[j])})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b pair) int { return cmp.Compare(a.distance, b.distance) })
	pairs, taken := map[int]int{}, map[int]bool{}
	for _, p := range all {
		if _, has := pairs[p.missing]; !has && !taken[p.got] {
			pairs[p.missing], taken[p.got] = p.got, true
		}
	}
	return pairs
}

// distance is how unlike a job is. Who it is for, and of what, says which job it is; the rest is how it is done.
func (w wanted) distance(got Job) int {
	const other = 10 // more than all the rest together
	total := 0
	for _, field := range w.differs(got) {
		switch field {
		case "recipient", "event", "kind":
			total += other
		default:
			total++
		}
	}
	return total
}

// like reports whether a job may be the wanted one with a slip in it.
func like(w wanted, got Job) bool {
	return w.Consumer == got.Consumer && len(w.differs(got)) <= 2
}

// shape says which keys of a job are worth showing in a test.
type shape struct{ event, attempts, priority bool }

func (t *test) shape() shape {
	s := shape{event: len(t.events) > 1}
	for _, w := range t.jobs {
		s.attempts = s.attempts || w.MaxAttempts != 0
		s.priority = s.priority || w.Priority != 0
	}
	return s
}

// text is a job as a test file writes it.
func (s shape) text(j Job) string {
	parts := []string{"consumer: " + plain(j.Consumer), "kind: " + plain(j.Kind)}
	if j.Queue != "" {
		parts = append(parts, "queue: "+plain(j.Queue))
	}
	if j.Recipient != "" {
		parts = append(parts, "recipient: "+plain(j.Recipient))
	}
	if s.event && j.Event > 0 {
		parts = append(parts, "event: "+strconv.Itoa(j.Event))
	}
	if s.attempts && j.MaxAttempts > 0 {
		parts = append(parts, "max_attempts: "+strconv.Itoa(j.MaxAttempts))
	}
	if s.priority && j.Priority > 0 {
		parts = append(parts, "priority: "+strconv.Itoa(j.Priority))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

var (
	unquoted = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./@+-]*$`)
	words    = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|y|n|null|none)$`)
)

// plain is a text as YAML, in quotes where it could be read as anything else.
func plain(text string) string {
	if unquoted.MatchString(text) && !words.MatchString(text) {
		return text
	}
	if strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return strconv.Quote(text) // nothing that moves the cursor of a terminal, or turns the text round
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a text is always written
	return strings.TrimSuffix(b.String(), "\n")
}
