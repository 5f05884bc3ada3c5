// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/problem"
)

// Standing is one consumer that the file declares, that has a cursor, or whose name the database lets in.
type Standing struct {
	Name     string   `json:"name"`
	Declared bool     `json:"declared"`         // in consumers.yaml
	Known    bool     `json:"known"`            // the database lets a cursor of this name in
	Cursor   *int64   `json:"cursor"`           // the last number that it has passed; null when it has none yet
	Lag      int64    `json:"lag"`              // how many events it has still to see
	Start    *int64   `json:"start"`            // the last number that it did not see because it started there; null when not recorded
	Former   []string `json:"former,omitempty"` // names that it had before, oldest first
}

// Orphan reports whether the consumer has a cursor and nobody runs it.
func (s Standing) Orphan() bool { return !s.Declared && s.Cursor != nil }

// ListConsumers is where every consumer stands: the declared ones in the order of the file, then the others
// by name.
func (e *Engine) ListConsumers(ctx context.Context) (list []Standing, head int64, err error) {
	cursors, err := e.store.Cursors(ctx)
	if err != nil {
		return nil, 0, err
	}
	recorded := lives(cursors.Deeds)
	names := e.config.Names()
	others := slices.Concat(cursors.Known, slices.Collect(maps.Keys(cursors.Rows)))
	slices.Sort(others)
	for _, name := range slices.Compact(others) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for i, name := range names {
		s := Standing{Name: name, Declared: i < len(e.config.Consumers), Known: slices.Contains(cursors.Known, name), Former: recorded[name].formerNames()}
		if at, has := cursors.Rows[name]; has {
			s.Cursor, s.Lag, s.Start = &at, cursors.Lag(name), recorded[name].start
		}
		list = append(list, s)
	}
	return list, cursors.Head, nil
}

// Change is what a change of a cursor does, or would do.
type Change struct {
	Deed    int64  // its number in the audit; 0 when nothing was changed
	Note    string // why there is nothing to do, or empty
	LastSeq *int64 // where the cursor stands; nil when there is none
	Head    int64  // of the log
	// Quarantined is how many events that the consumer had set aside were given up with it.
	Quarantined int64
}

// Lag is how many events the consumer has still to see.
func (c Change) Lag() int64 {
	if c.LastSeq == nil {
		return 0
	}
	return max(0, c.Head-*c.LastSeq)
}

// ChangeOptions are those of RenameConsumer, RetireConsumer and SkipConsumer.
type ChangeOptions struct {
	DryRun bool
	By     string            // the account of the operating system, for the audit
	Log    func(line string) // hears what the command waits for; nil: nobody
}

// RenameConsumer gives the cursor of a consumer that is declared no more the name of one that is declared and
// has none, so that the new name goes on where the old one stood. It connects as database.admin_url. Jobs
// that were inserted keep the old name as their tag.
func RenameConsumer(ctx context.Context, cfg *config.Config, from, to string, o ChangeOptions) (Change, error) {
	declared := cfg.Names()
	switch {
	case from == to:
		return Change{}, fmt.Errorf("consumer %q has this name already", from)
	case !slices.Contains(declared, to):
		return Change{}, fmt.Errorf("consumer %q is not declared in %s%s: give the consumer its new name there first", to, cfg.File(), hint(to, declared))
	case slices.Contains(declared, from):
		return Change{}, fmt.Errorf("consumer %q is still declared in %s: two consumers cannot share one cursor; give the entry its new name there first", from, cfg.File())
	}
	return changeCursor(ctx, cfg, o, postgres.CursorChange{Name: from, Decide: func(c postgres.Cursors) (postgres.CursorStep, error) {
		return decideRename(c, declared, from, to)
	}})
}

func decideRename(c postgres.Cursors, declared []string, from, to string) (postgres.CursorStep, error) {
	at, has := c.Rows[from]
	taken, exists := c.Rows[to]
	last := postgres.LastDeed(c.Deeds, from)
	switch {
	case !has && exists && last.Action == postgres.ConsumerRenamed && last.Details.To == to:
		return postgres.CursorStep{Note: fmt.Sprintf("nothing to do: consumer %q %s", from, last)}, nil
	case !has:
		return postgres.CursorStep{}, noCursor(c, declared, from, last)
	case exists:
		return postgres.CursorStep{}, fmt.Errorf("consumer %q has a cursor of its own, at %d, and that of %q is at %d: two positions cannot become one; "+
			"docs/operations.md says how to keep either", to, taken, from, at)
	}
	return postgres.CursorStep{Action: postgres.ConsumerRenamed, Details: postgres.DeedDetails{LastSeq: &at, Head: &c.Head, To: to}}, nil
}

// RetireConsumer removes the cursor of a consumer that is declared no more, and its name. Events that it has
// still to see are given up only with force. It connects as database.admin_url.
func RetireConsumer(ctx context.Context, cfg *config.Config, name, reason string, force bool, o ChangeOptions) (Change, error) {
	declared := cfg.Names()
	if slices.Contains(declared, name) {
		return Change{}, fmt.Errorf("consumer %q is declared in %s: remove it there, stop the engines that run it, and retire it then", name, cfg.File())
	}
	if reason == "" {
		return Change{}, errors.New("a consumer is retired for a reason: give one, it is kept in the audit")
	}
	return changeCursor(ctx, cfg, o, postgres.CursorChange{Name: name, Decide: func(c postgres.Cursors) (postgres.CursorStep, error) {
		return decideRetire(c, declared, name, reason, force)
	}})
}

func decideRetire(c postgres.Cursors, declared []string, name, reason string, force bool) (postgres.CursorStep, error) {
	step := postgres.CursorStep{Action: postgres.ConsumerRetired, Details: postgres.DeedDetails{Head: &c.Head, Reason: reason, Quarantined: c.Aside}}
	at, has := c.Rows[name]
	last := postgres.LastDeed(c.Deeds, name)
	switch {
	case has && c.Lag(name) > 0 && !force:
		return postgres.CursorStep{}, fmt.Errorf("consumer %q has %d events still to see: its cursor is at %d and the head at %d; "+
			"let it see them, or give them up with --force", name, c.Lag(name), at, c.Head)
	case has:
		step.Details.LastSeq = &at
	case slices.Contains(c.Known, name): // it was declared once and never ran: only the name goes
	case last.Action == postgres.ConsumerRetired:
		return postgres.CursorStep{Note: fmt.Sprintf("nothing to do: consumer %q %s", name, last)}, nil
	default:
		return postgres.CursorStep{}, noCursor(c, declared, name, last)
	}
	return step, nil
}

// noCursor says why there is nothing under a name, as far as the audit knows.
func noCursor(c postgres.Cursors, declared []string, name string, last postgres.Deed) error {
	if last.Action == postgres.ConsumerRenamed || last.Action == postgres.ConsumerRetired {
		return fmt.Errorf("consumer %q has no cursor: it %s", name, last)
	}
	var orphans []string
	for row := range c.Rows {
		if !slices.Contains(declared, row) {
			orphans = append(orphans, row)
		}
	}
	slices.Sort(orphans)
	return fmt.Errorf("consumer %q has no cursor%s: `engine consumers list` shows which have one", name, hint(name, orphans))
}

// hint names the one that was probably meant.
func hint(name string, known []string) string {
	if near := problem.Nearest(name, known); near != "" {
		return fmt.Sprintf(" (did you mean %q?)", near)
	}
	return ""
}

// changeCursor previews a change or carries it out.
func changeCursor(ctx context.Context, cfg *config.Config, o ChangeOptions, change postgres.CursorChange) (Change, error) {
	options := postgres.CursorOptions{
		AdminURL: cfg.Database.Admin().Reveal(), Schema: cfg.Database.Schema, Owner: cfg.Database.Roles.Owner,
		By: o.By, LockTimeout: cfg.Database.LockTimeout, StatementTimeout: cfg.Database.StatementTimeout, Log: o.Log,
	}
	var step postgres.CursorStep
	var deed int64
	var err error
	if o.DryRun {
		step, err = postgres.PreviewCursor(ctx, options, change)
	} else {
		step, deed, err = postgres.ChangeCursor(ctx, options, change)
	}
	if err != nil {
		return Change{}, err
	}
	result := Change{Deed: deed, Note: step.Note, LastSeq: step.Details.LastSeq, Quarantined: step.Details.Quarantined}
	if step.Details.Head != nil {
		result.Head = *step.Details.Head
	}
	return result, nil
}
