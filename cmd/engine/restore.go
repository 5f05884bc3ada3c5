// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/restore"
)

func restoreCommand(env lookupEnv) *cobra.Command {
	return group("restore", "takes a restored or moved database into use",
		`A database that was restored has gone back in time: it gives the numbers of events that are gone to other events.
restore makes sure that the two histories are never mixed. After a restore no consumer runs until finalize has
given the installation a new epoch and moved every cursor to the head. docs/restore.md is the runbook.`,
		`  engine restore status
  engine restore plan
  engine restore finalize
  engine restore manifest final.json
  engine restore finalize --relocation final.json
  engine restore demo             see it, on two servers of its own`,
		restoreFinalizeCommand(env), restorePlanCommand(env), restoreStatusCommand(env), restoreManifestCommand(env), restoreDemoCommand())
}

func restoreFinalizeCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "finalize",
		Short: "ends the old history, and lets the engine run on the restored database",
		Long: `finalize takes a restored database into use, in one transaction: a new random epoch, every cursor (of consumers,
agents, webhooks and of the tables of restore.cursors) at the head, the unfinished jobs of the old history settled
as restore.jobs says, the identity of this server stored, and one row of the audit that tells what was abandoned.
It also puts right a counter and cursors that a partial restore left apart. Any failure changes nothing.

It refuses while a session of database.roles.app, of a producer, or of a running engine is connected to the database,
and names it: stop the producers first, then the engines and the workers. On a database that needs no finalize it
says so and changes nothing, so it may be run again, and on two machines at once.

--relocation FILE is for a database that was moved and lost nothing: it compares head_seq, head_event, audit_seq,
audit_hash, sync_epoch, environment and where the copy says it comes from with the manifest that engine restore
manifest wrote when the last backup was taken. When all are equal it stores the identity alone, and epoch and cursors
go on. A difference exits with 1, names the field, and changes nothing.

finalize works as database.admin_url. It says what it is about to do and asks, unless --yes is given. It cannot be
undone: the events that a cursor skips are given up.

Exit codes: 0 done or nothing to do, 1 refused or failed, 2 the command line was not understood.`,
		Example: `  engine restore finalize
  engine restore finalize --yes --format json
  engine restore finalize --relocation final.json
  engine restore finalize --force      a failover lost commits, and nothing else shows it`,
		Args: arguments(),
	}
	path, format := configFlag(cmd), formatFlag(cmd)
	relocation := cmd.Flags().String("relocation", "", "the database was moved and lost nothing: compare it with the manifest in `FILE`; - is standard input")
	force := cmd.Flags().Bool("force", false, "make a new epoch whatever the database is")
	yes := cmd.Flags().Bool("yes", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch err := checkFormat(*format); {
		case err != nil:
			return err
		case *force && *relocation != "":
			return usagef("--force makes a new epoch and --relocation keeps the old one: give one of the two")
		case *path == "-" && !*yes:
			return usagef("the configuration and the answer cannot both be standard input: add --yes")
		case *path == "-" && *relocation == "-":
			return errOneInput
		case *relocation == "-" && !*yes:
			return usagef("the manifest and the answer cannot both be standard input: add --yes")
		case *format == "json" && !*yes:
			return usagef("--format json is for programs, and a program does not answer: add --yes")
		}
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		o := engine.FinalizeOptions{Force: *force, By: account(), Log: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }}
		if *relocation != "" {
			if o.Manifest, err = readManifest(cmd, *relocation); err != nil {
				return err
			}
		}
		if !*yes {
			if err := askToFinalize(cmd, cfg, o); err != nil {
				return err
			}
		}
		report, err := engine.FinalizeRestore(cmd.Context(), cfg, o)
		if err != nil {
			return err
		}
		if *format == "json" {
			err = printJSON(cmd.OutOrStdout(), finalizeOf(report))
		} else {
			err = printFinalized(cmd.OutOrStdout(), cmd.ErrOrStderr(), report)
		}
		if err == nil && report.End.Failure != "" {
			return errReported
		}
		return err
	}
	return cmd
}

// askToFinalize shows the plan and asks, unless nothing would be changed: the finalize says why.
func askToFinalize(cmd *cobra.Command, cfg *config.Config, o engine.FinalizeOptions) error {
	plan, err := engine.PlanRestore(cmd.Context(), cfg, o)
	if err != nil {
		return err
	}
	if !plan.NewEpoch() && plan.Answer != "moved" {
		return nil
	}
	if err := printRestorePlan(cmd.OutOrStdout(), plan); err != nil {
		return err
	}
	if plan.NewEpoch() {
		fmt.Fprintln(cmd.OutOrStdout(), "\nThis ends a history: what its cursors skip is given up, and there is no way back but another restore.")
	}
	return confirm(cmd)
}

// errOneInput is standard input that is asked to be two things.
var errOneInput = usagef("the configuration and the manifest cannot both be standard input: give one of the two as a file")

// readManifest reads the file that engine restore manifest wrote.
func readManifest(cmd *cobra.Command, name string) (*restore.Manifest, error) {
	text, err := manifestText(cmd, name)
	if err != nil {
		return nil, err
	}
	m, err := restore.ParseManifest(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &m, nil
}

// manifestText is the text of a manifest, and not much more of a file that is none.
func manifestText(cmd *cobra.Command, name string) ([]byte, error) {
	from := cmd.InOrStdin()
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read the manifest: %w", err)
		}
		defer file.Close()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, restore.MaxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return text, nil
}

func restorePlanCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "says what finalize would do, and changes nothing",
		Long: `plan prints what engine restore finalize would do now: each cursor with where it stands, where it would go and how
many events it would give up, the restored jobs by kind and state, what a partial restore left apart, and the
sessions that finalize would refuse for. It takes no lock and may be run while the engine runs.`,
		Example: `  engine restore plan
  engine restore plan --force
  engine restore plan --format json | jq '.cursors'`,
		Args: arguments(),
	}
	path, format := configFlag(cmd), formatFlag(cmd)
	force := cmd.Flags().Bool("force", false, "as finalize --force would")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkFormat(*format); err != nil {
			return err
		}
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		plan, err := engine.PlanRestore(cmd.Context(), cfg, engine.FinalizeOptions{Force: *force})
		if err != nil {
			return err
		}
		if *format == "json" {
			return printJSON(cmd.OutOrStdout(), restorePlanOf(plan))
		}
		return printRestorePlan(cmd.OutOrStdout(), plan)
	}
	return cmd
}

func restoreStatusCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "says whether the database has to be finalized",
		Long: `status prints which server the database is on and which one its cursors follow, its epoch and head, what a partial
restore left apart, and the last finalize. It exits with 0 when there is nothing to do, and with 1 when the engine
does not run before a finalize.`,
		Example: `  engine restore status
  engine restore status || engine restore plan`,
		Args: arguments(),
	}
	path, format := configFlag(cmd), formatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkFormat(*format); err != nil {
			return err
		}
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		plan, last, err := engine.RestoreStatus(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		if *format == "json" {
			err = printJSON(cmd.OutOrStdout(), restoreStatusOf(plan, last, cfg.Database.Guarded()))
		} else {
			err = printRestoreStatus(cmd.OutOrStdout(), plan, last, cfg.Database.Guarded())
		}
		if err == nil && plan.Answer != "same" {
			return errReported
		}
		return err
	}
	return cmd
}

func restoreManifestCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "manifest FILE",
		Short: "writes down where the database stands, for a relocation",
		Long: `manifest writes where the database stands: the head of its log, the newest row of its audit with its hash, and its
epoch. Write it when everything that appends is stopped, together with the last backup before a move: after the
move, engine restore finalize --relocation FILE proves with it that nothing was lost.

FILE is written whole or not at all, and only its owner may read it; - is the standard output. It holds no secret
and no event, and is worth keeping outside of the database: engine audit verify --manifest compares with it too.`,
		Example: `  engine restore manifest final.json
  engine restore manifest - | ssh new.example.com 'cat > final.json'`,
		Args: arguments("FILE"),
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("FILE is empty: name the file to write, or write - for the standard output")
		}
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		manifest, sessions, err := engine.RestoreManifest(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		text, err := manifest.Text()
		if err != nil {
			return err
		}
		if len(sessions) > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: %s could still append, and this is the manifest of a final backup only when none does:\n", count(int64(len(sessions)), "session"))
			for _, s := range sessions {
				fmt.Fprintf(cmd.ErrOrStderr(), "    %s\n", s)
			}
		}
		if args[0] == "-" {
			_, err = cmd.OutOrStdout().Write(text)
			return err
		}
		if err := writeWhole(args[0], text); err != nil {
			return fmt.Errorf("write the manifest: %w", err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: head %d, audit %d, epoch %s\n", args[0], manifest.HeadSeq, manifest.AuditSeq, manifest.SyncEpoch)
		return nil
	}
	return cmd
}

// writeWhole writes a file so that its name never leads to half of it, also when the machine stops. Only its owner
// may read it.
func writeWhole(name string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // with the mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
