// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/telemetry"
)

func runCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "runs the consumers until it is told to stop",
		Long: `run connects to database.url, checks the schema and every recipient rule, and does the work of its role:

  worker   runs the rounds of every consumer; as many processes as you like share the work
  api      serves, and runs no rounds
  all      both

One handler is built in, mentions: each @name in the text of an event's payload is a recipient. A program of
your own that embeds the engine registers others.

With http.listen it serves its metrics and its health, in every role. The variables OTEL_EXPORTER_OTLP_ENDPOINT and
its relatives send the metrics to a collector as well, and a span for each round that did work or failed.

It changes no schema (engine migrate up does) and works no job: your own River workers do. SIGTERM, SIGINT or
SIGHUP stops it (SIGHUP not under nohup): no further round begins, and those that run finish within
shutdown.total_timeout or roll back. A second signal ends it at once, which is safe too: a
round is one transaction.`,
		Example: `  engine run
  engine run --role worker --config production.yaml`,
		Args: arguments(),
	}
	path := configFlag(cmd)
	name := cmd.Flags().String("role", string(engine.RoleAll), "what this process does: `ROLE` is api, worker or all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		role, err := engine.ParseRole(*name)
		if err != nil {
			return usagef("--role is %q: write %s", *name, roles())
		}
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		logger := newLogger(cfg.Log, cmd.ErrOrStderr())
		options := []engine.Option{engine.WithLogger(logger)}
		// What there is to say of a collector the telemetry room logs, once. The SDK would print the rest past the log.
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
		collector, err := telemetry.Collector(cmd.Context(), env, logger)
		if err != nil {
			return err
		}
		if collector != nil {
			options = append(options, engine.WithMetricReader(collector))
		}
		spans, err := telemetry.SpanCollector(cmd.Context(), env, logger)
		if err != nil {
			return err
		}
		if spans != nil {
			options = append(options, engine.WithSpanProcessor(spans))
		}
		e, err := engine.Open(cmd.Context(), cfg, options...)
		if err != nil {
			return err
		}
		defer e.Close()
		if err := e.Register(mentionsName, mentions); err != nil {
			return err
		}
		return e.Run(cmd.Context(), role)
	}
	return cmd
}

// roles are all roles, as a sentence.
func roles() string {
	names := make([]string, len(engine.Roles))
	for i, r := range engine.Roles {
		names[i] = string(r)
	}
	last := len(names) - 1
	return fmt.Sprintf("%s or %s", strings.Join(names[:last], ", "), names[last])
}

// newLogger writes what the engine says about itself, as the section log of the configuration wants it.
func newLogger(l config.Log, to io.Writer) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	options := &slog.HandlerOptions{Level: levels[l.Level]}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}
