// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"example.com/bothy/engine/document"
	"example.com/bothy/engine/problem"
	"example.com/bothy/engine/round"
)

// checker compares a declaration with its subject, and fills the File.
type checker struct {
	file   *File
	tree   *document.Tree
	read   func(string) ([]byte, error)
	folder string
	unsure bool // which consumers the test looks at: nothing is said about theirs in its jobs
}

func (c *checker) check(d *declaration, tree *document.Tree) {
	c.tree = tree
	c.setup(d)
	first := map[string]string{}
	for i := range d.Tests {
		path := fmt.Sprintf("tests[%d]", i)
		name := path + ".name"
		if tree.Sound(name) {
			if before, twice := first[d.Tests[i].Name]; twice {
				tree.Refuse(name, "duplicate-test", fmt.Sprintf("%s is %s, and so is that of a test before it", name, tree.Quoted(name)),
					"give one of the two another name", before)
			} else {
				first[d.Tests[i].Name] = name
			}
		}
		c.file.tests = append(c.file.tests, c.test(&d.Tests[i], path))
	}
}

// setup reads the files.
func (c *checker) setup(d *declaration) {
	for i, name := range d.Setup {
		path := fmt.Sprintf("setup[%d]", i)
		if !c.tree.Sound(path) {
			continue
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(c.folder, name)
		}
		text, err := c.read(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			c.tree.Refuse(path, "bad-setup", fmt.Sprintf("%s is %s, and there is no such file", path, c.tree.Quoted(path)),
				"write its path as seen from "+where(c.folder))
		case err != nil:
			if in, ok := errors.AsType[*fs.PathError](err); ok {
				err = in.Err // the path is said already
			}
			c.tree.Refuse(path, "bad-setup", fmt.Sprintf("%s is %s, which cannot be read: %v", path, c.tree.Quoted(path), err), "name a file that this user can read")
		case !utf8.Valid(text):
			c.tree.Refuse(path, "bad-setup", fmt.Sprintf("%s is %s, which is not text in UTF-8", path, c.tree.Quoted(path)), "name a file of SQL in UTF-8")
		default:
			c.file.setup = append(c.file.setup, script{string(text), inText(name, string(text))})
		}
	}
	if d.SetupSQL != "" {
		tree := c.tree
		c.file.setup = append(c.file.setup, script{d.SetupSQL, func(at int) problem.Position { return tree.Inside("setup_sql", at) }})
	}
}

// where is a folder in a sentence.
func where(folder string) string {
	if folder == "." {
		return "the folder of this file"
	}
	return folder
}

// inText finds the line and the column of a character of a file.
func inText(name, text string) func(at int) problem.Position {
	return func(at int) problem.Position {
		before := []rune(text)
		before = before[:min(max(at, 0), len(before))]
		line, col := 1, 1
		for _, r := range before {
			if col++; r == '\n' {
				line, col = line+1, 1
			}
		}
		return problem.Position{File: name, Line: line, Col: col}
	}
}

func (c *checker) test(e *testEntry, path string) test {
	t := test{name: e.Name, at: c.tree.At(path), errorText: e.Error}
	c.unsure = false
	t.consumers = c.consumers(e, path+".consumers")
	c.rows(&t, e, path+".rows")
	for i := range e.Events {
		t.events = append(t.events, event(&e.Events[i], i+1))
		t.eventAt = append(t.eventAt, c.tree.At(fmt.Sprintf("%s.events[%d]", path, i)))
	}
	jobs, failing := path+".jobs", path+".error"
	switch {
	case c.tree.Sound(jobs) && c.tree.Sound(failing):
		c.tree.Refuse(failing, "two-expectations", c.titled(path, e.Name)+" expects jobs and an error, and a rule that fails creates none",
			"keep one of the two, and move the other to a test of its own", jobs)
	case c.tree.Written(failing):
		t.wantsError, t.expectAt = true, c.tree.At(failing)
	case c.tree.Written(jobs):
		t.expectAt = c.tree.At(jobs)
		for i := range e.Jobs {
			t.jobs = append(t.jobs, c.job(&t, &e.Jobs[i], fmt.Sprintf("%s[%d]", jobs, i)))
		}
	default:
		c.tree.Refuse(path, "missing-expectation", c.titled(path, e.Name)+" expects nothing, so it could never fail",
			"add jobs with the jobs that the events become, or jobs: none")
	}
	return t
}

func (c *checker) titled(path, name string) string {
	if c.tree.Sound(path + ".name") {
		return fmt.Sprintf("the test %q", name)
	}
	return path
}

// consumers are those that a test looks at.
func (c *checker) consumers(e *testEntry, path string) []round.Consumer {
	subject := c.file.subject
	var list []round.Consumer
	if !c.tree.Written(path) {
		for _, consumer := range subject.Consumers {
			if subject.here(consumer) {
				list = append(list, consumer)
			}
		}
		return list
	}
	for i, name := range e.Consumers {
		at := fmt.Sprintf("%s[%d]", path, i)
		consumer, ok := c.consumer(name, at)
		switch {
		case !ok:
			c.unsure = true
		case !subject.here(consumer):
			c.tree.Refuse(at, "absent-handler", fmt.Sprintf("the rule of consumer %q is the handler %q, which is not in this program", name, consumer.Rule.Handler),
				"test it in Go, in the program that registers it, and leave it out here")
			c.unsure = true
		default:
			list = append(list, consumer)
		}
	}
	return list
}

// consumer is the declared consumer of a name, or a problem.
func (c *checker) consumer(name, path string) (round.Consumer, bool) {
	subject := c.file.subject
	i := slices.IndexFunc(subject.Consumers, func(consumer round.Consumer) bool { return consumer.Name == name })
	switch {
	case i >= 0:
		return subject.Consumers[i], true
	case c.tree.Sound(path):
		names := subject.Config.Names()
		c.tree.Refuse(path, "unknown-consumer", fmt.Sprintf("%s is %s, and %s declares no such consumer", path, c.tree.Quoted(path), subject.Config.File()), nearest(name, names))
	}
	return round.Consumer{}, false
}

// nearest is what may have been meant.
func nearest(word string, known []string) string {
	if near := problem.Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	const most = 10
	if len(known) > most {
		return fmt.Sprintf("write one of %s, ... (%d in all)", strings.Join(known[:most], ", "), len(known))
	}
	return "write one of " + strings.Join(known, ", ")
}

func (c *checker) rows(t *test, e *testEntry, path string) {
	for _, table := range c.tree.Keys(path) {
		for i, row := range e.Rows[table] {
			values, err := json.Marshal(row)
			if err != nil {
				continue // the reader has refused a value of it
			}
			t.rows = append(t.rows, Row{table, values})
			t.rowAt = append(t.rowAt, c.tree.At(fmt.Sprintf("%s[%s][%d]", path, table, i)))
		}
	}
}

// event is an event as the log would hold it.
func event(e *eventEntry, seq int) round.Event {
	event := round.Event{
		Seq: int64(seq), ID: e.ID, Type: e.Type, Resource: e.Resource, ResourceID: e.ResourceID, Audience: e.Audience,
		Payload: json.RawMessage(e.Payload), OccurredAt: moment(e.OccurredAt), EventTime: moment(e.EventTime),
	}
	if event.ID == "" {
		event.ID = fmt.Sprintf("00000000-0000-4000-8000-%012d", seq)
	}
	if len(event.Payload) == 0 || string(event.Payload) == "null" {
		event.Payload = json.RawMessage(`{}`)
	}
	return event
}

// job is an expected job with what it leaves out filled in.
func (c *checker) job(t *test, e *jobEntry, path string) wanted {
	w := wanted{at: c.tree.At(path), Job: Job{
		Consumer: e.Consumer, Event: e.Event, Kind: e.Kind, Queue: e.Queue, Recipient: e.Recipient, MaxAttempts: e.MaxAttempts, Priority: e.Priority,
	}}
	c.eventOf(t, &w, path)
	switch {
	case c.unsure:
	case e.Consumer != "":
		c.named(t, &w, path)
	case e.Kind != "":
		c.byKind(t, &w, path)
	case len(t.consumers) == 1:
		w.Consumer, w.Kind = t.consumers[0].Name, t.consumers[0].Job.Kind
	default:
		c.tree.Refuse(path, "unclear-job", path+" names neither a consumer nor a kind", "add consumer: with one of "+namesOf(t.consumers))
	}
	return w
}

// eventOf checks the number of the event.
func (c *checker) eventOf(t *test, w *wanted, path string) {
	switch n := len(t.events); {
	case w.Event > n && n > 0:
		c.tree.Refuse(path+".event", "no-such-event", fmt.Sprintf("%s.event is %d, and the test has %s", path, w.Event, counting(n, "event")), fmt.Sprintf("write a number from 1 to %d", n))
	case w.Event == 0 && n > 1 && !c.tree.Written(path+".event") && !c.own(t, w):
		c.tree.Refuse(path, "missing-event", fmt.Sprintf("%s does not say of which of the %d events it comes", path, n), fmt.Sprintf("add event: with a number from 1 to %d", n))
	case w.Event == 0 && n == 1 && !c.own(t, w):
		w.Event = 1
	}
}

// own reports whether an expected job may be one that a handler makes itself: it need not name an event.
func (c *checker) own(t *test, w *wanted) bool {
	return slices.ContainsFunc(t.consumers, func(consumer round.Consumer) bool {
		return consumer.Rule.Kind == round.RuleHandler && consumer.Name == w.Consumer && w.Kind != "" && w.Kind != consumer.Job.Kind
	})
}

// named checks a job that names its consumer.
func (c *checker) named(t *test, w *wanted, path string) {
	i := slices.IndexFunc(t.consumers, func(consumer round.Consumer) bool { return consumer.Name == w.Consumer })
	if i < 0 {
		if consumer, declared := c.consumer(w.Consumer, path+".consumer"); declared {
			what, fix := fmt.Sprintf("%s.consumer is %q, which this test does not look at", path, w.Consumer), "add it to the consumers of the test"
			if !c.file.subject.here(consumer) {
				what = fmt.Sprintf("%s.consumer is %q, whose handler %q is not in this program", path, w.Consumer, consumer.Rule.Handler)
				fix = "test it in Go, in the program that registers it, and leave it out here"
			}
			c.tree.Refuse(path+".consumer", "other-consumer", what, fix)
		}
		return
	}
	consumer := t.consumers[i]
	switch {
	case w.Kind == "":
		w.Kind = consumer.Job.Kind
	case w.Kind != consumer.Job.Kind && consumer.Rule.Kind != round.RuleHandler && c.tree.Sound(path+".kind"):
		c.tree.Refuse(path+".kind", "other-kind", fmt.Sprintf("%s.kind is %s, and consumer %q makes no such job", path, c.tree.Quoted(path+".kind"), consumer.Name),
			fmt.Sprintf("write %s, or leave the kind out", consumer.Job.Kind))
	}
}

// byKind finds the consumer of a job by its kind.
func (c *checker) byKind(t *test, w *wanted, path string) {
	var owners, kinds []string
	for _, consumer := range t.consumers {
		kinds = append(kinds, consumer.Job.Kind)
		if consumer.Job.Kind == w.Kind {
			owners = append(owners, consumer.Name)
		}
	}
	switch {
	case len(owners) == 1:
		w.Consumer = owners[0]
	case !c.tree.Sound(path + ".kind"):
	case len(owners) > 1:
		c.tree.Refuse(path, "unclear-job", fmt.Sprintf("%s.kind is %s, which several consumers make", path, c.tree.Quoted(path+".kind")), "add consumer: with one of "+strings.Join(owners, ", "))
	default:
		c.tree.Refuse(path+".kind", "other-kind", fmt.Sprintf("%s.kind is %s, and no consumer of this test makes such jobs", path, c.tree.Quoted(path+".kind")), nearest(w.Kind, kinds))
	}
}

func namesOf(consumers []round.Consumer) string {
	names := make([]string, len(consumers))
	for i, c := range consumers {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// counting says how many there are of a thing, in words.
func counting(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
