// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ChangeKind says what a change is about.
type ChangeKind string

// The kinds of changes, in the order in which they are planned.
const (
	ChangeServer      ChangeKind = "server"      // something refuses any change
	ChangeRole        ChangeKind = "role"        // a role is created, or one joins the owner
	ChangeSchema      ChangeKind = "schema"      // a schema is created
	ChangeMigration   ChangeKind = "migration"   // of the engine's own tables
	ChangeJobs        ChangeKind = "jobs"        // of River's tables
	ChangeInstance    ChangeKind = "instance"    // the identity of the installation is written
	ChangeNotify      ChangeKind = "notify"      // notifications are switched
	ChangeRetention   ChangeKind = "retention"   // how long events are kept at least
	ChangePartitions  ChangeKind = "partitions"  // of the event log are made
	ChangeNames       ChangeKind = "names"       // of consumers are added to those that a cursor may have
	ChangeGrant       ChangeKind = "grant"       // a right is given
	ChangeEnvironment ChangeKind = "environment" // the installation is called otherwise
	ChangeIdentity    ChangeKind = "identity"    // the database is not the one that the cursors follow
	ChangeNewCursor   ChangeKind = "cursor"      // is created
	ChangeOrphan      ChangeKind = "orphan"      // a cursor whose consumer is not declared
)

// The commands that make changes.
const (
	byMigrate     = "engine migrate up"
	byBootstrap   = "engine migrate up --bootstrap"
	byNewNames    = "engine migrate up --new-consumers"
	byEnvironment = "engine migrate up --new-environment"
	byRun         = "engine run"
	byRename      = "engine consumers rename"
	byRetire      = "engine consumers retire"
	byFinalize    = "engine restore finalize"
	byPerson      = "you" // no command of the engine does it
)

// Change is one thing that lies between a database and its configuration.
type Change struct {
	Kind     ChangeKind `json:"kind"`
	By       string     `json:"by"` // the command that does it; "you" when none does
	What     string     `json:"what"`
	Blocks   bool       `json:"blocks"` // somebody has to act or decide before the engine is started
	Migrates bool       `json:"-"`      // a database without it is not up to date
}

// Plan is every change in the order in which it would be made: first what a migration does, then what a
// start does, then what only a person can decide.
func (s Status) Plan() []Change {
	var plan []Change
	add := func(c Change) { plan = append(plan, c) }
	for _, err := range slices.Concat([]error{s.TooOld}, s.Refused) {
		if err != nil {
			add(Change{Kind: ChangeServer, By: byPerson, What: err.Error(), Blocks: true, Migrates: true})
		}
	}
	plan = append(plan, s.schemaChanges()...)
	plan = append(plan, s.contentChanges()...)
	plan = append(plan, s.missingChanges()...)
	plan = append(plan, s.startChanges()...)
	return append(plan, s.orphanChanges()...)
}

// schemaChanges make roles, schemas and tables.
func (s Status) schemaChanges() (plan []Change) {
	migrates := func(kind ChangeKind, by, format string, args ...any) {
		plan = append(plan, Change{Kind: kind, By: by, What: fmt.Sprintf(format, args...), Migrates: true})
	}
	for _, role := range s.AbsentRoles {
		migrates(ChangeRole, byBootstrap, "create the role %s", role)
	}
	if !s.joinable && !slices.Contains(s.AbsentRoles, s.Owner) {
		migrates(ChangeRole, byBootstrap, "make %s a member of the owner %s", s.Server.Role, s.Owner)
	}
	for _, schema := range s.AbsentSchemas {
		migrates(ChangeSchema, byMigrate, "create the schema %s", schema)
	}
	for _, file := range s.Pending() {
		migrates(ChangeMigration, byMigrate, "apply migration %s", file)
	}
	switch {
	case s.JobsVersion >= s.JobsNeeded:
	case s.want.JobsMigrate:
		migrates(ChangeJobs, byMigrate, "migrate River's tables in schema %s from version %d to %d", s.want.JobsSchema, s.JobsVersion, s.JobsNeeded)
	default:
		plan = append(plan, Change{Kind: ChangeJobs, By: byPerson, What: s.advice, Blocks: true, Migrates: true})
	}
	return plan
}

// contentChanges write what a migration writes beyond the tables.
func (s Status) contentChanges() (plan []Change) {
	migrates := func(kind ChangeKind, format string, args ...any) {
		plan = append(plan, Change{Kind: kind, By: byMigrate, What: fmt.Sprintf(format, args...), Migrates: true})
	}
	switch {
	case !s.Installation.Exists:
		migrates(ChangeInstance, "write the identity of the installation")
	case !s.Installation.Known && s.Installation.Readable:
		migrates(ChangeInstance, "store which server this is")
	}
	if want := s.want.Environment; want != "" && s.Installation.Exists && s.Installation.Environment == "" {
		migrates(ChangeEnvironment, "call the installation %q", want)
	}
	if s.want.Notify != nil && *s.want.Notify != s.Notify {
		migrates(ChangeNotify, "turn notifications %s", onOff(*s.want.Notify))
	}
	if s.want.Retention != 0 && s.want.Retention != s.Retention {
		migrates(ChangeRetention, "keep events for at least %v instead of %v", s.want.Retention, s.Retention)
	}
	if s.toMake > 0 {
		migrates(ChangePartitions, "make %d %s of the event log", s.toMake, plural(s.toMake, "partition"))
	}
	doubt := s.Doubt()
	for _, n := range s.Names {
		switch {
		case n.Declared && !n.Known && doubt != nil && !s.want.NewConsumers:
			plan = append(plan, Change{Kind: ChangeNames, By: byNewNames, What: fmt.Sprintf("let consumer %s have a cursor, if it is a new one and none of those below under another name", n.Name), Migrates: true})
		case n.Declared && !n.Known:
			migrates(ChangeNames, "let consumer %s have a cursor", n.Name)
		}
	}
	return plan
}

// missingChanges give rights. What is not the engine's own, this role may not be able to give.
func (s Status) missingChanges() (plan []Change) {
	for i, n := range s.Missing {
		by := byMigrate
		if s.foreign[i] {
			by = byBootstrap
		}
		plan = append(plan, Change{Kind: ChangeGrant, By: by, What: n.Do, Migrates: true})
	}
	return plan
}

// startChanges are what the first start does, and what it stumbles over.
func (s Status) startChanges() (plan []Change) {
	if i := s.Installation; i.Exists {
		if want := s.want.Environment; want != "" && i.Environment != "" && i.Environment != want {
			plan = append(plan, Change{Kind: ChangeEnvironment, By: byEnvironment, Blocks: true, What: fmt.Sprintf(
				"the database says environment %q and the configuration %q: connect to the right database, correct database.environment, finalize a copy by force, or let it be called so", i.Environment, want)})
		}
		if !i.Same {
			plan = append(plan, Change{Kind: ChangeIdentity, By: byFinalize, Blocks: true, What: "this server is not the one whose history the cursors follow: it was restored or promoted, and no round runs before that is settled"})
		}
	}
	for _, n := range s.Names {
		if n.Declared && !n.Cursor {
			plan = append(plan, Change{Kind: ChangeNewCursor, By: byRun, What: fmt.Sprintf("create the cursor of consumer %s at the head, which is %d now", n.Name, s.Head)})
		}
	}
	return plan
}

// Orphans are the cursors whose consumer is not declared, and New the declared consumers without one.
func (s Status) Orphans() (orphans, without []NameState) {
	for _, n := range s.Names {
		switch {
		case n.Cursor && !n.Declared:
			orphans = append(orphans, n)
		case n.Declared && !n.Cursor:
			without = append(without, n)
		}
	}
	return orphans, without
}

// Lag is how many events a cursor has still to see.
func (s Status) Lag(n NameState) int64 { return max(0, s.Head-n.LastSeq) }

// orphanChanges tell what became of consumers that are no longer declared. Where a new one could be the same
// consumer under another name, a start would make it begin at the head and skip what the old one has not seen:
// that is decided first.
func (s Status) orphanChanges() (plan []Change) {
	orphans, without := s.Orphans()
	for _, o := range orphans {
		c := Change{Kind: ChangeOrphan, By: byRetire, Blocks: len(without) > 0}
		is := fmt.Sprintf("consumer %s is not declared and has a cursor at %d, %s behind", o.Name, o.LastSeq, events(s.Lag(o)))
		switch {
		case len(without) == 0:
			c.What = is + ": declare it again, or run `engine consumers retire " + o.Name + " --reason TEXT`"
		case len(orphans) == 1 && len(without) == 1:
			c.By = byRename
			c.What = fmt.Sprintf("%s, and %s is new: this looks like a rename: run `engine consumers rename %s %s`, or `engine consumers retire %s --reason TEXT` when it is none", is, without[0].Name, o.Name, without[0].Name, o.Name)
		default:
			c.By = byRename
			c.What = fmt.Sprintf("%s: if it is one of the new consumers (%s) under another name, run `engine consumers rename %s NEW`, else `engine consumers retire %s --reason TEXT`", is, namesOf(without), o.Name, o.Name)
		}
		plan = append(plan, c)
	}
	return plan
}

func namesOf(states []NameState) string {
	names := make([]string, len(states))
	for i, n := range states {
		names[i] = n.Name
	}
	return strings.Join(names, ", ")
}

func events(n int64) string {
	return strconv.FormatInt(n, 10) + " " + plural(n, "event")
}

func plural[N int | int64](n N, thing string) string {
	if n == 1 {
		return thing
	}
	return thing + "s"
}
