// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/devdb"
	"example.com/bothy/engine/expect"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/round"
)

// testServers makes a database for each test file that needs one, all on one server.
type testServers struct {
	cmd *cobra.Command
	env lookupEnv
	cfg *config.Config
	// avoid are the addresses of the configuration: a setup could leave a role on their servers
	avoid []string

	address string // of the server, once there is one
	err     error  // why there is none
	undo    []func() error
}

// open makes a migrated database.
func (s *testServers) open(ctx context.Context) (expect.Stage, error) {
	if s.address == "" && s.err == nil {
		s.address, s.err = s.start(ctx)
	}
	if s.err != nil {
		return nil, s.err
	}
	made, err := scratchDatabase(ctx, s.cmd.ErrOrStderr(), s.address, "bothy_test_")
	if err != nil {
		return nil, err
	}
	s.undo = append(s.undo, made.stop)
	cfg := *s.cfg
	alone(&cfg, made.url)
	cfg.Sync.EventLogPartitionSize, cfg.Sync.PartitionsAhead = postgres.DefaultPartitionSize, 1
	if _, err := postgres.Migrate(ctx, aloneOptions(&cfg)); err != nil {
		return nil, err
	}
	e, err := engine.Open(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	s.undo = append(s.undo, func() error { e.Close(); return nil })
	if err := e.Register(mentionsName, mentions); err != nil {
		return nil, err
	}
	return stage{e, made.url}, nil
}

// start gives the address of a server.
func (s *testServers) start(ctx context.Context) (string, error) {
	say := s.cmd.ErrOrStderr()
	existing, err := givenServer(s.env, s.avoid)
	if err != nil {
		return "", err
	}
	if existing != "" {
		if err := mayCreate(ctx, existing); err != nil {
			return "", err
		}
		fmt.Fprintf(say, "tests run on the server %s of %s\n", postgres.Address(existing), serverVariable)
		return existing, nil
	}
	server, err := devdb.Start(ctx, devdb.Options{Fetch: true, Log: say})
	if err != nil {
		return "", err
	}
	s.undo = append(s.undo, server.Stop)
	return server.URL(devdb.Superuser, "postgres"), nil
}

// stop undoes everything, the last thing first.
func (s *testServers) stop() error {
	var errs []error
	for _, undo := range slices.Backward(s.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

// stage is a database as tests see it.
type stage struct {
	engine *engine.Engine
	url    string
}

// Setup runs a script.
func (s stage) Setup(ctx context.Context, sql string) error {
	err := postgres.RunScript(ctx, s.url, sql)
	if flaw, ok := errors.AsType[*postgres.ScriptError](err); ok {
		return &expect.RefusedError{Row: -1, Event: -1, At: flaw.At, What: flaw.What, Fix: flaw.Fix}
	}
	answer, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	return &expect.RefusedError{Row: -1, Event: -1, At: int(answer.Position) - 1, What: said(answer)}
}

// Rehearse runs the rules of consumers.
func (s stage) Rehearse(ctx context.Context, rows []expect.Row, events []round.Event, consumers []string) ([]expect.Answer, error) {
	scene := engine.Scene{Events: events, Rows: make([]engine.Row, len(rows))}
	for i, row := range rows {
		scene.Rows[i] = engine.Row(row)
	}
	rehearsed, err := s.engine.Rehearse(ctx, scene, consumers)
	if refused, ok := errors.AsType[*postgres.SceneError](err); ok {
		return nil, &expect.RefusedError{Row: refused.Row, Event: refused.Event, At: -1, What: refused.What}
	}
	if err != nil {
		return nil, err
	}
	answers := make([]expect.Answer, len(rehearsed))
	for i, r := range rehearsed {
		answers[i] = expect.Answer{Targets: r.Targets, Err: readable(r.Err), At: r.At}
		for _, own := range r.Own {
			answers[i].Own = append(answers[i].Own, expect.OwnJob(own))
		}
	}
	return answers, nil
}

// readable is the error of a rule for its author, who knows neither the driver nor SQLSTATEs.
func readable(err error) error {
	rule, ok := errors.AsType[*postgres.RuleError](err)
	if !ok {
		return err
	}
	text := "the recipient rule " + rule.What
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		if !strings.Contains(rule.Fix, strings.TrimSuffix(answer.Hint, ".")) {
			text += ": " + said(answer)
		} else {
			text += ": " + answer.Message // its hint is the fix
		}
	}
	return errors.New(text + "\nfix: " + rule.Fix)
}

// said is what the server says, with its hint.
func said(answer *pgconn.PgError) string {
	if answer.Hint == "" {
		return answer.Message
	}
	return answer.Message + "; " + strings.TrimSuffix(answer.Hint, ".")
}
