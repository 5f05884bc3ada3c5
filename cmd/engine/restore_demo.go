// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/devdb"
	"example.com/bothy/engine/finalize"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/producer"
)

// demoFile is what the demo runs: push is quick, archive is behind when the backup is taken.
const demoFile = `version: 1
database: {url: "${DEMO_URL}"}
jobs: {migrate: true}
consumers:
  - {name: push, batch: 100, job: {kind: mail.send}, recipients: none}
  - {name: archive, batch: 4, job: {kind: archive.append}, recipients: none}
`

// restoreDemoCommand is what make restore-demo runs.
func restoreDemoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "shows a restore from the loss to the finalize, on two servers of its own",
		Long: `demo starts two private servers. On the first one events are appended and delivered, a backup is taken, and more
events follow. Then that server is lost, the backup is loaded on the second one, and the demo shows what the engine
does there. Nothing is left behind.`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return restoreDemo(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
}

// demoServer is one of the two servers.
type demoServer struct {
	*devdb.Server

	cfg *config.Config
}

func startDemo(ctx context.Context, stderr io.Writer) (*demoServer, error) {
	server, err := devdb.Start(ctx, devdb.Options{Fetch: true, Log: stderr})
	if err != nil {
		return nil, err
	}
	url := server.URL(devdb.Superuser, "postgres")
	cfg, problems := config.Parse("consumers.yaml", []byte(demoFile), func(name string) (string, bool) { return url, name == "DEMO_URL" })
	err = problems.Err()
	if err == nil {
		_, err = postgres.Migrate(ctx, aloneOptions(cfg))
	}
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return &demoServer{server, cfg}, nil
}

// append appends n orders in one transaction.
func (d *demoServer) append(ctx context.Context, first, n int) error {
	conn, err := pgx.Connect(ctx, d.cfg.Database.URL.Reveal())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is in flight
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for i := range n {
			if _, err := producer.Append(ctx, tx, producer.Event{Type: "order.placed", Resource: "order", ResourceID: fmt.Sprint("ord-", first+i)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// rounds runs one round of each of some consumers, and gives how they ended.
func (d *demoServer) rounds(ctx context.Context, names ...string) (ends []string, err error) {
	e, err := engine.Open(ctx, d.cfg)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	for _, name := range names {
		o, err := e.Round(ctx, name)
		if err != nil {
			return nil, err
		}
		ends = append(ends, fmt.Sprintf("%s: %s, %s", name, o.End.Name, count(int64(o.Jobs), "job")))
	}
	return ends, nil
}

// prepare makes the cursors of a new log.
func (d *demoServer) prepare(ctx context.Context) error {
	e, err := engine.Open(ctx, d.cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Prepare(ctx)
}

// restoreDemo tells the story. Each step that does not come out as told is an error.
func restoreDemo(ctx context.Context, out, stderr io.Writer) (err error) {
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	first, err := startDemo(ctx, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.Stop()) }()
	say("1. A server, and ten orders. The consumer push delivers all of them, archive is behind.")
	var backup postgres.Backup
	for _, step := range []func() error{
		func() error { return first.prepare(ctx) },
		func() error { return first.append(ctx, 1, 10) },
		func() error { return demoRounds(ctx, say, first, "push", "archive") },
		func() error {
			say("2. A backup is taken here, at event 10. The shop goes on: events 11 to 14 are appended and delivered.")
			backup, err = postgres.TakeBackup(ctx, first.cfg.Database.URL.Reveal(), first.cfg.Database.Schema, first.cfg.Jobs.Schema)
			return err
		},
		func() error { return first.append(ctx, 11, 4) },
		func() error { return demoRounds(ctx, say, first, "push", "archive") },
		func() error { return demoPlace(ctx, say, first, 11) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	say("3. The server is lost. The backup is loaded on another one.")
	if err := first.Stop(); err != nil {
		return err
	}
	return demoRestored(ctx, say, stderr, backup)
}

// demoRestored is what happens on the server that the backup was loaded on.
func demoRestored(ctx context.Context, say func(string, ...any), stderr io.Writer, backup postgres.Backup) (err error) {
	second, err := startDemo(ctx, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, second.Stop()) }()
	if err := backup.Load(ctx, second.cfg.Database.URL.Reveal()); err != nil {
		return err
	}
	say("4. The engine notices, and creates no job:")
	if err := demoRounds(ctx, say, second, "push", "archive"); err != nil {
		return err
	}
	say("5. engine restore finalize --yes")
	report, err := engine.FinalizeRestore(ctx, second.cfg, engine.FinalizeOptions{By: "the demo"})
	if err != nil {
		return err
	}
	if err := printFinalized(indented{say}, indented{say}, report); err != nil {
		return err
	}
	if report.End.Name != finalize.EndFinalized {
		return fmt.Errorf("the finalize came to the end %s", report.End.Name)
	}
	say("6. The shop is open again. The next orders get the numbers that others had:")
	if err := second.append(ctx, 21, 4); err != nil {
		return err
	}
	if err := demoRounds(ctx, say, second, "push", "archive"); err != nil {
		return err
	}
	if err := demoPlace(ctx, say, second, 11); err != nil {
		return err
	}
	say("Number 11 exists twice, and (epoch, number) tells the two apart: no reader takes one for the other.")
	return nil
}

func demoRounds(ctx context.Context, say func(string, ...any), d *demoServer, names ...string) error {
	ends, err := d.rounds(ctx, names...)
	for _, end := range ends {
		say("   %s", end)
	}
	return err
}

// demoPlace says which event has a number.
func demoPlace(ctx context.Context, say func(string, ...any), d *demoServer, seq int64) error {
	e, err := engine.Open(ctx, d.cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	x, err := e.Why(ctx, seq, engine.WhyOptions{})
	if err != nil {
		return err
	}
	if x.Event == nil {
		return fmt.Errorf("event %d is not in the log", seq)
	}
	say("   event %d of epoch %s is %s of %s", seq, x.Epoch, x.Event.Type, x.Event.ResourceID)
	return nil
}

// indented is a writer of whole lines, set in.
type indented struct{ say func(string, ...any) }

func (i indented) Write(p []byte) (int, error) {
	for line := range strings.SplitSeq(strings.TrimSuffix(string(p), "\n"), "\n") {
		i.say("   %s", line)
	}
	return len(p), nil
}
