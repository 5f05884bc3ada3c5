// SPDX-License-Identifier: Apache-2.0

// Package expect owns the tests of consumers: consumers.test.yaml says which jobs given events must become.
//
//	text --document--> declaration --check--> File --Run--> Report --> lines for people, JUnit XML
//	                                            |
//	                                          Stage, a database: only for tests that reach a query or a handler
//
// The rules field, list and none run in the pure core, as in a round. What the others give comes from a Stage,
// and whatever a test puts there is gone for the next one. It refuses a test that could never fail (an unknown
// consumer, a kind that no job has, an event that is not in its list) as a problem with a position. It knows no
// SQL, no River and no command.
package expect

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/document"
	"example.com/bothy/engine/problem"
	"example.com/bothy/engine/round"
)

// declaration is what a test file may hold.
type declaration struct {
	Version  int         `yaml:"version" validate:"required,eq=1" since:"0.1" doc:"The version of this file's grammar. It is 1."`
	Setup    []string    `yaml:"setup" validate:"omitempty,min=1,max=100,dive,script_file" since:"0.1" doc:"SQL files that make the tables which query rules and handlers read, relative to this file. They run once, in this order, on an empty database, and only when a test needs one."`
	SetupSQL string      `yaml:"setup_sql" validate:"omitempty,script" since:"0.1" doc:"SQL that runs after the files of setup."`
	Tests    []testEntry `yaml:"tests" validate:"required,min=1,max=10000,dive" since:"0.1" doc:"The tests. Each has a log and tables of its own."`
}

// testEntry is one test.
type testEntry struct {
	Name      string                                 `yaml:"name" validate:"required,test_name" since:"0.1" doc:"What holds, in a few words. No other test of the file has the same name."`
	Consumers []string                               `yaml:"consumers" validate:"omitempty,min=1,max=5000,dive,consumer" since:"0.1" doc:"The consumers that the test looks at. Absent: all."`
	Rows      map[string][]map[string]document.Value `yaml:"rows" validate:"omitempty,min=1,max=1000,dive,keys,table,endkeys,min=1,dive,dive,keys,column,endkeys" since:"0.1" doc:"Rows by table, for this test alone: {public.watchers: [{id: 1, person: alex}]}. A column that a row leaves out has the table's default."`
	Events    []eventEntry                           `yaml:"events" validate:"required,min=1,max=1000,dive" since:"0.1" doc:"The whole log. The events are numbered from 1."`
	Jobs      []jobEntry                             `yaml:"jobs" word:"none" validate:"omitempty,max=10000,dive" since:"0.1" doc:"The jobs that the consumers create of the events: these and no others, in any order. The word none: not one."`
	Error     string                                 `yaml:"error" validate:"omitempty,message" since:"0.1" doc:"In place of jobs: a rule fails, and its message holds this text."`
}

// eventEntry is one event.
type eventEntry struct {
	Type       string         `yaml:"type" validate:"required,event_type" since:"0.1" doc:"The type of the event, such as order.paid."`
	Resource   string         `yaml:"resource" validate:"omitempty,resource" since:"0.1" doc:"The kind of thing that the event is about. Absent: empty."`
	ResourceID string         `yaml:"resource_id" validate:"omitempty,resource_id" since:"0.1" doc:"Which one. Absent: empty."`
	Audience   []string       `yaml:"audience" validate:"omitempty,max=10000,dive,person" since:"0.1" doc:"The people whom the event concerns. Absent: none."`
	Payload    document.Value `yaml:"payload" since:"0.1" doc:"Any value, stored as JSON. Absent: {}."`
	ID         string         `yaml:"id" validate:"omitempty,event_id" since:"0.1" doc:"The id of the event. Absent: one that ends in its number."`
	OccurredAt string         `yaml:"occurred_at" validate:"omitempty,moment" since:"0.1" doc:"When the event was numbered. Absent: now."`
	EventTime  string         `yaml:"event_time" validate:"omitempty,moment" since:"0.1" doc:"When it happened, as the producer says. Absent: not said."`
}

// jobEntry is one expected job.
type jobEntry struct {
	Consumer    string `yaml:"consumer" validate:"omitempty,consumer" since:"0.1" doc:"The consumer that creates the job. Absent: the one that has this kind."`
	Kind        string `yaml:"kind" validate:"omitempty,kind" since:"0.1" doc:"The kind of the job. Absent: that of the consumer."`
	Queue       string `yaml:"queue" validate:"omitempty,queue" since:"0.1" doc:"The queue of the job. Absent: not compared."`
	Recipient   string `yaml:"recipient" validate:"omitempty,recipient" since:"0.1" doc:"Who the job is for. Absent: nobody, as under the rule none."`
	Event       int    `yaml:"event" validate:"omitempty,min=1,max=1000" unit:"place in the list" since:"0.1" doc:"The number of the event in the list, from 1. It may be left out when there is one event."`
	MaxAttempts int    `yaml:"max_attempts" validate:"omitempty,min=1,max=32767" unit:"attempts" since:"0.1" doc:"How often River tries the job. Absent: not compared."`
	Priority    int    `yaml:"priority" validate:"omitempty,min=1,max=4" since:"0.1" doc:"River's priority of the job. Absent: not compared."`
}

// Subject is what a test file is about.
type Subject struct {
	Config    *config.Config
	Consumers []round.Consumer // of Config, in its order
	Handlers  []string         // that this program has registered
	Lookup    document.Lookup  // that Config was read with: what ${NAME} stands for
}

// here reports whether this program can run the rule of a consumer.
func (s Subject) here(c round.Consumer) bool {
	return c.Rule.Kind != round.RuleHandler || slices.Contains(s.Handlers, c.Rule.Handler)
}

// File is a checked test file.
type File struct {
	name    string
	subject Subject
	setup   []script
	tests   []test
}

// script is SQL that runs once.
type script struct {
	sql   string
	place func(at int) problem.Position // of a character, from 0; -1 is the whole
}

// test is a checked test.
type test struct {
	name       string
	at         problem.Position
	rows       []Row
	rowAt      []problem.Position
	events     []round.Event
	eventAt    []problem.Position
	consumers  []round.Consumer
	jobs       []wanted
	wantsError bool
	errorText  string
	expectAt   problem.Position // of jobs or error
}

// Load reads and checks the file at path; "-" is standard input. The files of its setup are read too.
func Load(path string, subject Subject) (*File, problem.List) {
	text, found := document.ReadFile(path, Name)
	if found != nil {
		return nil, problem.List{*found}
	}
	return Parse(path, text, subject)
}

// Name is the usual name of a test file.
const Name = "consumers.test.yaml"

// Parse reads and checks a file that is already in memory. path is its name in the problems, and where the
// files of its setup are looked for.
func Parse(path string, text []byte, subject Subject) (*File, problem.List) {
	return parse(path, text, subject, os.ReadFile)
}

func parse(path string, text []byte, subject Subject, read func(string) ([]byte, error)) (*File, problem.List) {
	c := &checker{file: &File{name: path, subject: subject}, read: read, folder: filepath.Dir(path)}
	_, _, problems := grammar(c.check).Read(path, text, subject.Lookup)
	if problems.Errors() > 0 {
		return nil, problems
	}
	return c.file, problems
}

// grammar reads a declaration, and then lets check look at it.
func grammar(check func(*declaration, *document.Tree)) *document.Grammar[declaration] {
	return &document.Grammar[declaration]{
		Name:    Name,
		About:   "What is expected of consumers: which jobs they create of which events. `engine test` runs it.",
		Begin:   "version: 1 and at least one test",
		Formats: formats,
		Check:   check,
	}
}

// Schema is the JSON Schema of a test file.
func Schema() ([]byte, error) { return grammar(nil).Schema() }

// Reference is the page with every key of a test file.
func Reference() []byte { return grammar(nil).Reference() }

// Len is how many tests there are.
func (f *File) Len() int { return len(f.tests) }

// place is where the rule of a consumer is written, or a character of its query, from 0.
func (s Subject) place(consumer string, at int) problem.Position {
	i := slices.IndexFunc(s.Consumers, func(c round.Consumer) bool { return c.Name == consumer })
	path := fmt.Sprintf("consumers[%d].recipients", i)
	if s.Consumers[i].Rule.Kind != round.RuleQuery {
		return s.Config.At(path)
	}
	return s.Config.Inside(path+".query", at)
}
