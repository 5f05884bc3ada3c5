// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/bothy/definitions"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/finalize"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/problem"
	"example.com/bothy/engine/restore"
)

// sessionPatience is how long a finalize waits for programs that were stopped a moment ago to be gone.
const sessionPatience = 2 * time.Second

// RestoreTable is the restore table of this binary, parsed and proven.
func RestoreTable() (*machine.Machine, problem.List) {
	file, text := definitions.Restore()
	return machine.Load(file, text, finalize.Vocabulary())
}

// FinalizeOptions say what a finalize is to do.
type FinalizeOptions struct {
	Manifest *restore.Manifest // of the final backup of a database that was only moved
	Force    bool              // a new epoch, whatever the database is
	By       string            // the account of the operating system, for the audit
	Log      func(line string) // hears what the command waits for; nil: nobody
}

// FinalizeReport is how a finalize went.
type FinalizeReport = finalize.Report

// IdentityFunctions are the functions that tell which server this is, as a GRANT names them.
func IdentityFunctions() string { return postgres.IdentityFunctions() }

// RestorePlan is what a finalize would do, of one moment.
type RestorePlan struct {
	State    restore.State
	Verdict  restore.Verdict
	Answer   string // what compare_identity would answer
	Head     int64
	Flaws    []restore.Flaw
	Moves    []restore.Moved
	Jobs     []restore.JobCount
	JobsRule restore.JobsRule
	Sessions []restore.Session // that would stop it
	At       time.Time         // by the clock of the database
	// Environment is the label that the file gives and the database does not have; empty when they agree.
	Environment string
}

// NewEpoch reports whether finalizing gives the installation a new epoch.
func (p RestorePlan) NewEpoch() bool {
	return slices.Contains([]string{"differs", "unsound", "forced"}, p.Answer)
}

// restoreOptions are those of the postgres room as a configuration gives them.
func restoreOptions(cfg *config.Config, log func(string)) postgres.RestoreOptions {
	o := postgres.RestoreOptions{
		AdminURL: cfg.Database.Admin().Reveal(), URL: cfg.Database.URL.Reveal(), Schema: cfg.Database.Schema,
		Owner: cfg.Database.Roles.Owner, App: cfg.Database.Roles.App, Producers: cfg.Database.Roles.Producers,
		JobsSchema: cfg.Jobs.Schema, Names: cfg.Names(), LockTimeout: cfg.Database.LockTimeout, Patience: sessionPatience, Log: log,
	}
	for _, c := range cfg.Consumers {
		if !slices.Contains(o.Kinds, c.Job.Kind) {
			o.Kinds = append(o.Kinds, c.Job.Kind)
		}
	}
	for _, c := range cfg.Restore.Cursors {
		schema, table, _ := strings.Cut(c.Table, ".")
		o.Cursors = append(o.Cursors, postgres.CursorTable{Schema: schema, Table: table, Column: c.Column, Where: c.Where})
	}
	return o
}

// finalizing is a restorer as the restore table sees it.
type finalizing struct {
	*postgres.Restorer

	wrap func(finalize.Tx) finalize.Tx // nil outside of tests
}

// Finalize runs one transaction.
func (f finalizing) Finalize(ctx context.Context, run func(context.Context, finalize.Tx) bool) error {
	return f.Restorer.Finalize(ctx, func(ctx context.Context, tx *postgres.FinalizeTx) bool {
		if f.wrap != nil {
			return run(ctx, f.wrap(tx))
		}
		return run(ctx, tx)
	})
}

// FinalizeRestore leaves the history of a restored database behind, or with a manifest takes a moved one for what it
// was, in one transaction: definitions/restore.yaml says what is done. It connects as database.admin_url. An error is
// one of the connection, of a step or of the commit, and nothing was changed then, unless it says that the reply to COMMIT
// is lost; a refusal is an end of the report.
func FinalizeRestore(ctx context.Context, cfg *config.Config, o FinalizeOptions) (FinalizeReport, error) {
	return finalizeRestore(ctx, cfg, o, nil)
}

func finalizeRestore(ctx context.Context, cfg *config.Config, o FinalizeOptions, wrap func(finalize.Tx) finalize.Tx) (FinalizeReport, error) {
	if o.Manifest != nil && o.Force {
		return FinalizeReport{}, errors.New("a relocation keeps the epoch and a forced finalize makes a new one: ask for one of the two")
	}
	table, problems := RestoreTable()
	if err := problems.Err(); err != nil {
		return FinalizeReport{}, err
	}
	epoch, err := uuid.NewV7()
	if err != nil {
		return FinalizeReport{}, fmt.Errorf("make an epoch: %w", err)
	}
	restorer, err := postgres.OpenRestore(ctx, restoreOptions(cfg, o.Log))
	if err != nil {
		return FinalizeReport{}, err
	}
	defer restorer.Close()
	report := finalize.Run(ctx, finalizing{restorer, wrap}, table, finalize.Options{
		Epoch: epoch.String(), Manifest: o.Manifest, Force: o.Force, Jobs: restore.JobsRule(cfg.Restore.Jobs),
		Environment: cfg.Database.Environment, By: o.By,
	})
	if finalize.Uncertain(report.Err) {
		return report, fmt.Errorf("finalize the restore: %w", report.Err)
	}
	if report.Err != nil {
		return report, fmt.Errorf("finalize the restore: %w; nothing was changed", report.Err)
	}
	return report, nil
}

// PlanRestore says what a finalize would do, and changes nothing.
func PlanRestore(ctx context.Context, cfg *config.Config, o FinalizeOptions) (RestorePlan, error) {
	restorer, err := postgres.OpenRestore(ctx, restoreOptions(cfg, o.Log))
	if err != nil {
		return RestorePlan{}, err
	}
	defer restorer.Close()
	return planRestore(ctx, cfg, restorer, o)
}

func planRestore(ctx context.Context, cfg *config.Config, restorer *postgres.Restorer, o FinalizeOptions) (p RestorePlan, err error) {
	p.JobsRule = restore.JobsRule(cfg.Restore.Jobs)
	p.State, p.Sessions, p.Jobs, p.At, err = restorer.Look(ctx)
	if err != nil {
		return p, err
	}
	p.Verdict, p.Flaws, p.Head = restore.Match(p.State.Stored, p.State.Current), p.State.Flaws(), p.State.Head()
	p.Answer = finalize.Decide(p.State, finalize.Options{Manifest: o.Manifest, Force: o.Force, Environment: cfg.Database.Environment})
	for _, c := range p.State.Cursors {
		p.Moves = append(p.Moves, restore.MoveOf(c, p.Head))
	}
	if cfg.Database.Environment != p.State.Environment {
		p.Environment = cfg.Database.Environment
	}
	return p, nil
}

// LastDeed is the newest finalize or relocation.
type LastDeed struct {
	Deed    int64           `json:"deed"`
	At      time.Time       `json:"at"`
	Action  string          `json:"action"`
	Details json.RawMessage `json:"details"`
}

// RestoreStatus is how the restore of a database stands, and the last one that was finalized, or nil.
func RestoreStatus(ctx context.Context, cfg *config.Config) (p RestorePlan, last *LastDeed, err error) {
	restorer, err := postgres.OpenRestore(ctx, restoreOptions(cfg, nil))
	if err != nil {
		return p, nil, err
	}
	defer restorer.Close()
	if p, err = planRestore(ctx, cfg, restorer, FinalizeOptions{}); err != nil {
		return p, nil, err
	}
	seq, at, action, details, err := restorer.LastFinalize(ctx)
	if err != nil || seq == 0 {
		return p, nil, err
	}
	return p, &LastDeed{seq, at.UTC(), action, details}, nil
}

// RestoreManifest describes the database for the manifest of its final backup. The sessions are those that could
// still change it.
func RestoreManifest(ctx context.Context, cfg *config.Config) (restore.Manifest, []restore.Session, error) {
	p, err := PlanRestore(ctx, cfg, FinalizeOptions{})
	if err != nil {
		return restore.Manifest{}, nil, err
	}
	switch {
	case p.Verdict == restore.Unreadable:
		return restore.Manifest{}, nil, errors.New("the identity of the server cannot be read, and a manifest says which server it was taken on: have an administrator run: GRANT EXECUTE ON FUNCTION " + IdentityFunctions() + " TO the role of database.admin_url")
	case p.Verdict.Changed():
		return restore.Manifest{}, nil, fmt.Errorf("the database %s: finalize that first, a manifest of it would vouch for a history that ended", p.Verdict)
	case p.State.Audit.Flaw != "":
		return restore.Manifest{}, nil, fmt.Errorf("%s: a manifest of a damaged audit would vouch for it", p.State.Audit.Flaw)
	case len(p.Flaws) > 0:
		return restore.Manifest{}, nil, fmt.Errorf("%s: run `engine restore finalize` first, a manifest of damage would vouch for it", p.Flaws[0])
	}
	return restore.ManifestOf(p.State, p.At), p.Sessions, nil
}
