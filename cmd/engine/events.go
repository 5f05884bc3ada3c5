// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"example.com/bothy/engine/cloudevents"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/problem"
	"example.com/bothy/engine/producer"
)

// mostProblems bounds what is printed of a file that is broken throughout.
const mostProblems = 20

// chunkBytes bounds the payloads that are held until they are sent together.
const chunkBytes = 8 << 20

func eventsCommand(env lookupEnv) *cobra.Command {
	return group("events", "works with the events of the log",
		"events holds the commands that work with the events of the log.",
		"  engine events append events.jsonl", appendCommand(env))
}

func appendCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "append FILE",
		Short: "appends CloudEvents from a file to the log",
		Long: `append reads CloudEvents 1.0 in JSON, one on each line or all in one array, and appends them to the event
log of database.url in the order of the file. FILE - is standard input.

The file is read to its end first: when any event cannot be read, the command says which line and stores
nothing, and otherwise everything is stored in one transaction. With --partial, everything before the first
event that cannot be read is stored, in transactions of --batch events.

An event's type, source, subject, id, time, data and the extensions audience (names with commas between
them) and traceparent are stored. An id that is no UUID is stored as one that is made of source and id.
Appending a file twice stores its events twice.`,
		Example: `  engine events append events.jsonl
  engine events append --partial --batch 5000 history.jsonl
  generate-events | engine events append -`,
		Args: arguments("FILE"),
	}
	path := configFlag(cmd)
	partial := cmd.Flags().Bool("partial", false, "store everything before the first event that cannot be read")
	batch := cmd.Flags().Int("batch", 1000, "`N` events are sent together, 1 to 100000")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *batch < 1 || *batch > 100000 {
			return usagef("--batch is %d: write a number from 1 to 100000", *batch)
		}
		if args[0] == "-" && *path == "-" {
			return usagef("the events and the configuration cannot both be standard input")
		}
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		a := appending{cmd: cmd, cfg: cfg, file: args[0], batch: *batch}
		if *partial {
			return a.partly()
		}
		return a.whole()
	}
	return cmd
}

// appending is one run of append.
type appending struct {
	cmd   *cobra.Command
	cfg   *config.Config
	file  string
	text  []byte // what file holds, when it is no file of the user's
	batch int
}

// whole stores all events or none.
func (a appending) whole() error {
	source, discard, err := a.rereadable()
	if err != nil {
		return err
	}
	defer discard()
	if err := a.check(source); err != nil {
		return err
	}
	if _, err := source.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read %s again: %w", a.file, err)
	}
	ctx := a.cmd.Context()
	conn, err := a.connect()
	if err != nil {
		return err
	}
	defer closeConnection(ctx, conn)
	reader, stored := cloudevents.NewReader(a.file, source), 0
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for {
			events, err := a.chunk(reader)
			if len(events) > 0 && (err == nil || errors.Is(err, io.EOF)) {
				if err := a.send(ctx, tx, events); err != nil {
					return err
				}
				stored += len(events)
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err // the file changed since it was checked
			}
		}
	})
	if err != nil {
		return a.refusal(err, 0)
	}
	a.done(stored, reader)
	return nil
}

// partly stores what stands before the first event that cannot be read.
func (a appending) partly() error {
	source, discard, err := a.open()
	if err != nil {
		return err
	}
	defer discard()
	ctx := a.cmd.Context()
	conn, err := a.connect()
	if err != nil {
		return err
	}
	defer closeConnection(ctx, conn)
	reader, stored := cloudevents.NewReader(a.file, source), 0
	for {
		events, reading := a.chunk(reader)
		if len(events) > 0 {
			err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return a.send(ctx, tx, events) })
			if err != nil {
				return a.refusal(err, stored)
			}
			stored += len(events)
		}
		if errors.Is(reading, io.EOF) {
			a.done(stored, reader)
			return nil
		}
		if reading != nil {
			a.done(stored, reader)
			return reading
		}
	}
}

// open opens the file, or standard input, for one reading.
func (a appending) open() (io.Reader, func(), error) {
	if a.text != nil {
		return bytes.NewReader(a.text), func() {}, nil
	}
	if a.file == "-" {
		return a.cmd.InOrStdin(), func() {}, nil
	}
	f, err := os.Open(a.file)
	if err != nil {
		return nil, nil, err
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		_ = f.Close() // opened for reading: nothing to lose
		return nil, nil, fmt.Errorf("read %s: it is a directory: name a file inside it", a.file)
	}
	return f, func() { _ = f.Close() }, nil
}

// rereadable opens what is to be read twice. What cannot be (a pipe) is copied to a temporary file.
func (a appending) rereadable() (io.ReadSeeker, func(), error) {
	source, discard, err := a.open()
	if err != nil {
		return nil, nil, err
	}
	if text, ok := source.(*bytes.Reader); ok {
		return text, discard, nil
	}
	if f, ok := source.(*os.File); ok && a.file != "-" {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return f, discard, nil
		}
	}
	defer discard()
	spool, err := os.CreateTemp("", "bothy-events-*")
	if err != nil {
		return nil, nil, fmt.Errorf("keep %s until it is checked: %w", a.file, err)
	}
	remove := func() {
		_ = spool.Close()
		_ = os.Remove(spool.Name())
	}
	if _, err := io.Copy(spool, source); err != nil {
		remove()
		return nil, nil, fmt.Errorf("keep %s until it is checked: %w", a.file, err)
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		remove()
		return nil, nil, fmt.Errorf("keep %s until it is checked: %w", a.file, err)
	}
	return spool, remove, nil
}

// check reads all events and reports every one that cannot be read.
func (a appending) check(source io.Reader) error {
	reader := cloudevents.NewReader(a.file, source)
	var problems problem.List
	total := 0
	for {
		_, err := a.next(reader)
		if errors.Is(err, io.EOF) {
			break
		}
		if found, ok := errors.AsType[problem.List](err); ok {
			if total += len(found); len(problems) < mostProblems {
				problems = append(problems, found...)
			}
		} else if err != nil {
			return err
		}
	}
	if total == 0 {
		return nil
	}
	stderr := a.cmd.ErrOrStderr()
	fmt.Fprintln(stderr, problems.Error())
	if more := total - len(problems); more > 0 {
		fmt.Fprintf(stderr, "and %s more\n", count(more, "problem"))
	}
	advice := ""
	if a.cmd.Flags().Lookup("partial") != nil {
		advice = "; --partial stores what stands before the first problem"
	}
	fmt.Fprintf(stderr, "engine: nothing was stored: %s cannot be read as it is%s\n", a.file, advice)
	return errReported
}

// next reads one event and holds it to what the log accepts, so that what the database would refuse has a
// line too.
func (a appending) next(reader *cloudevents.Reader) (producer.Event, error) {
	e, err := reader.Next()
	if err != nil {
		return producer.Event{}, err
	}
	event := producer.Event{
		ID: e.ID, Type: e.Type, Resource: e.Resource, ResourceID: e.ResourceID,
		Audience: e.Audience, Payload: e.Payload, Time: e.Time, Traceparent: e.Traceparent,
	}
	var wrong *producer.EventError
	if err := event.Check(); errors.As(err, &wrong) {
		attributes := map[string]string{"Resource": "source", "ResourceID": "subject", "Payload": "data"}
		name, renamed := attributes[wrong.Field]
		if !renamed {
			name = strings.ToLower(wrong.Field)
		}
		at := problem.Position{File: a.file, Line: e.Line, Col: e.Col}
		return producer.Event{}, problem.List{{At: at, Severity: problem.Error, Code: "bad-attribute", What: name + " " + wrong.Unwrap().Error()}}
	}
	return event, nil
}

// chunk reads the events that are sent together. With an error, the events before it are returned too.
func (a appending) chunk(reader *cloudevents.Reader) ([]producer.Event, error) {
	var events []producer.Event
	for size := 0; len(events) < a.batch && size < chunkBytes; {
		e, err := a.next(reader)
		if err != nil {
			return events, err
		}
		events = append(events, e)
		size += len(e.Payload)
	}
	return events, nil
}

func (a appending) connect() (*pgx.Conn, error) {
	conn, err := pgx.Connect(a.cmd.Context(), a.cfg.Database.URL.Reveal())
	if err != nil {
		return nil, fmt.Errorf("connect to append: %w", postgres.Explain(err))
	}
	return conn, nil
}

func closeConnection(ctx context.Context, conn *pgx.Conn) {
	_ = conn.Close(context.WithoutCancel(ctx)) // everything is committed or rolled back by now
}

func (a appending) send(ctx context.Context, tx pgx.Tx, events []producer.Event) error {
	_, err := producer.Log{Schema: a.cfg.Database.Schema}.Append(ctx, tx, events...)
	return err
}

// refusal says how much of the file is stored after an error of the database.
func (a appending) refusal(err error, stored int) error {
	if errors.As(err, new(problem.List)) {
		return err
	}
	if stored == 0 {
		return fmt.Errorf("append %s: %w; nothing was stored", a.file, postgres.Explain(err))
	}
	return fmt.Errorf("append %s: %w; the first %s stored", a.file, postgres.Explain(err), count(stored, "event"))
}

// done says what was stored, and what of it has no place in the log.
func (a appending) done(stored int, reader *cloudevents.Reader) {
	fmt.Fprintf(a.cmd.OutOrStdout(), "%s appended\n", count(stored, "event"))
	unmapped := reader.Unmapped()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(unmapped)) {
		names = append(names, fmt.Sprintf("%s (%s)", name, count(unmapped[name], "event")))
	}
	if len(names) > 0 {
		fmt.Fprintf(a.cmd.ErrOrStderr(), "note: the log has no place for these attributes, and left them out: %s\n", strings.Join(names, ", "))
	}
}
