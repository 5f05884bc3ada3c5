// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/bothy/engine"
	"example.com/bothy/engine/finalize"
	"example.com/bothy/engine/restore"
	"example.com/bothy/engine/round"
)

// printRestorePlan says what a finalize would do.
func printRestorePlan(to io.Writer, p engine.RestorePlan) error {
	fmt.Fprintln(to, wouldDo(p))
	printIdentity(to, p)
	for _, flaw := range p.Flaws {
		fmt.Fprintf(to, "found: %s\n", flaw)
	}
	if p.State.Audit.Flaw != "" {
		fmt.Fprintf(to, "found: %s\n", p.State.Audit.Flaw)
	}
	if p.NewEpoch() {
		if err := printMoves(to, p); err != nil {
			return err
		}
		if err := printRestoredJobs(to, p); err != nil {
			return err
		}
		printAside(to, p.State.Aside, "would be let go")
	}
	if len(p.Sessions) > 0 && p.Answer != "same" {
		fmt.Fprintf(to, "\nfinalize refuses while %s connected:\n", areConnected(p.Sessions))
		for _, s := range p.Sessions {
			fmt.Fprintf(to, "    %s\n", s)
		}
	}
	return nil
}

// printAside says what becomes of events in quarantine.
func printAside(to io.Writer, a restore.Aside, then string) {
	if a.Above > 0 {
		fmt.Fprintf(to, "%s: %s in quarantine above the head\n", then, count(a.Above, "event"))
	}
	if a.Stay > 0 {
		fmt.Fprintf(to, "in quarantine: %s; whether it was retried in the history that is gone, nobody knows here: look before you retry or drop it\n", count(a.Stay, "event"))
	}
}

// wouldDo is the first line of a plan.
func wouldDo(p engine.RestorePlan) string {
	switch {
	case p.NewEpoch():
		what := fmt.Sprintf("finalize would begin a new epoch at the head %d", p.Head)
		if r := finalize.Abandoned(p.Moves); r != nil {
			what += fmt.Sprintf(" and give up %s, %d to %d, that a cursor has still to pass", count(r.Count(), "event"), r.First, r.Last)
		}
		if p.Environment != "" && p.State.Environment != "" {
			what += fmt.Sprintf("; the database is %q and would be called %q", p.State.Environment, p.Environment)
		}
		return what
	case p.Answer == "moved":
		return "finalize would compare the database with the manifest, store its identity, and keep epoch and cursors"
	case p.Answer == "unreadable":
		return "finalize would refuse: this role may not read the identity of the server"
	case p.Answer == "foreign":
		return foreign(p.State, p.Environment)
	default:
		return "finalize would find nothing to do"
	}
}

func foreign(s restore.State, label string) string {
	return fmt.Sprintf("the database is on the server that its cursors follow, and calls itself %q where database.environment says %q: this looks like the wrong database", s.Environment, label)
}

func printIdentity(to io.Writer, p engine.RestorePlan) {
	fmt.Fprintf(to, "the database %s\n", p.Verdict)
	fmt.Fprintf(to, "it is on %s; its cursors follow %s\n", identity(p.State.Current), identity(p.State.Stored))
}

func identity(i round.Identity) string {
	if !i.Known() {
		return "a server that is not known"
	}
	return i.String()
}

// printMoves is a line for each consumer and for each other table of cursors.
func printMoves(to io.Writer, p engine.RestorePlan) error {
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\nCURSOR\tFROM\tTO\tEVENTS GIVEN UP")
	for i, c := range p.State.Cursors {
		if len(c.Named) > 0 {
			for _, n := range p.Moves[i].Named {
				fmt.Fprintf(table, "consumer %s\t%d\t%d\t%d\n", n.Name, n.From, n.To, n.Events)
			}
			continue
		}
		if c.Rows == 0 || c.Lowest == nil {
			continue
		}
		from, given := strconv.FormatInt(*c.Lowest, 10), "0"
		if *c.Top != *c.Lowest {
			from += " to " + strconv.FormatInt(*c.Top, 10)
		}
		if n := max(0, p.Head-*c.Lowest); n > 0 {
			given = strconv.FormatInt(n, 10)
			if c.Rows > 1 {
				given = "up to " + given
			}
		}
		fmt.Fprintf(table, "%s.%s (%s)\t%s\t%d\t%s\n", c.Table, c.Column, count(c.Rows, "row"), from, p.Head, given)
	}
	return table.Flush()
}

func printRestoredJobs(to io.Writer, p engine.RestorePlan) error {
	if len(p.Jobs) == 0 {
		return nil
	}
	then := "CANCELLED"
	if p.JobsRule == restore.KeepJobs {
		then = "KEPT"
	}
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "\nRESTORED JOBS\tSTATE\t%s\n", then)
	for _, j := range p.Jobs {
		fmt.Fprintf(table, "%s\t%s\t%d\n", j.Kind, j.State, j.Count)
	}
	return table.Flush()
}

func areConnected(sessions []restore.Session) string {
	if len(sessions) == 1 {
		return "this session is"
	}
	return fmt.Sprintf("these %d sessions are", len(sessions))
}

// printFinalized says how a finalize ended: what was done on the standard output, a refusal on the other.
func printFinalized(out, stderr io.Writer, r engine.FinalizeReport) error {
	switch r.End.Name {
	case finalize.EndFinalized:
		printNewEpoch(out, r)
	case finalize.EndRelocated:
		fmt.Fprintf(out, "relocated: the database is now known on %s; epoch %s and every cursor go on (audit %d)\n", identity(r.State.Current), r.EpochTo, r.Deed)
	case finalize.EndAlready, finalize.EndOvertaken:
		fmt.Fprintf(out, "already finalized: the database %s; epoch %s, head %d; nothing was changed\n", restore.Match(r.State.Stored, r.State.Current), r.EpochTo, r.State.Head())
	case finalize.EndRefused:
		fmt.Fprintf(stderr, "engine: finalize runs alone, and %s connected; nothing was changed:\n", areConnected(r.Sessions))
		for _, s := range r.Sessions {
			fmt.Fprintf(stderr, "    %s\n", s)
		}
		fmt.Fprintln(stderr, "fix: stop the producers first, then the engines and the workers. A pooler keeps connections open after its clients are gone: "+
			"stop it, or have it close them (PgBouncer: PAUSE, then KILL). What is left ends with SELECT pg_terminate_backend(PID)")
	case finalize.EndDifferent:
		fmt.Fprintln(stderr, "engine: the database is not where the manifest says; nothing was changed:")
		for _, d := range r.Differences {
			fmt.Fprintf(stderr, "    %s\n", d)
		}
		fmt.Fprintln(stderr, "fix: give the manifest of the backup that was restored; when this is the right one, the database was not only moved: run `engine restore finalize` without --relocation")
	case finalize.EndUnreadable:
		fmt.Fprintln(stderr, "engine: the identity of the server cannot be read, so it can be neither compared nor stored; nothing was changed")
		fmt.Fprintf(stderr, "fix: have an administrator run: GRANT EXECUTE ON FUNCTION %s TO the role of database.admin_url\n", engine.IdentityFunctions())
	case finalize.EndForeign:
		fmt.Fprintf(stderr, "engine: the database is on the server that its cursors follow, and calls itself %q where database.environment says otherwise: this looks like the wrong database; nothing was changed\n", r.State.Environment)
		fmt.Fprintln(stderr, "fix: connect to the right database, or, when this one is a copy on purpose, run it again with --force")
	default:
		return fmt.Errorf("finalize came to the end %q, which this command does not know", r.End.Name)
	}
	return nil
}

// printNewEpoch says what a finalize did, and what comes next.
func printNewEpoch(out io.Writer, r engine.FinalizeReport) {
	fmt.Fprintf(out, "finalized: a new epoch begins at the head %d (audit %d)\n", r.State.Head(), r.Deed)
	fmt.Fprintf(out, "epoch %s ended; this is %s\n", r.EpochFrom, r.EpochTo)
	if r.Environment != "" {
		fmt.Fprintf(out, "the database is now called %q\n", r.Environment)
	}
	for _, flaw := range r.Flaws {
		fmt.Fprintf(out, "put right: %s\n", flaw)
	}
	if a := finalize.Abandoned(r.Moved); a != nil {
		fmt.Fprintf(out, "given up: events %d to %d, by the cursors below\n", a.First, a.Last)
	}
	for _, m := range r.Moved {
		for _, n := range m.Named {
			fmt.Fprintf(out, "    consumer %s: from %d to %d, %s given up\n", n.Name, n.From, n.To, count(n.Events, "event"))
		}
		if len(m.Named) == 0 && m.Rows > 0 {
			fmt.Fprintf(out, "    %s.%s: %s moved to %d\n", m.Table, m.Column, count(m.Rows, "row"), m.To)
		}
	}
	var jobs int64
	for _, j := range r.Jobs {
		jobs += j.Count
	}
	switch {
	case jobs > 0 && r.JobsRule == restore.KeepJobs:
		fmt.Fprintf(out, "kept: %s of the old epoch; workers have to compare the epoch\n", count(jobs, "job"))
	case jobs > 0:
		fmt.Fprintf(out, "cancelled: %s of the old epoch\n", count(jobs, "job"))
	}
	printAside(out, r.State.Aside, "let go")
	fmt.Fprintln(out, "next: start the engine and the workers, then the producers")
}

func printRestoreStatus(to io.Writer, p engine.RestorePlan, last *engine.LastDeed, guarded bool) error {
	word := "nothing to do"
	if p.Answer != "same" {
		word = "not finalized: stop the producers and run `engine restore finalize`"
	}
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "restore\t%s\n", word)
	fmt.Fprintf(table, "database\t%s\n", p.Verdict)
	fmt.Fprintf(table, "server\t%s\n", identity(p.State.Current))
	fmt.Fprintf(table, "cursors follow\t%s\n", identity(p.State.Stored))
	environment := p.State.Environment
	if environment == "" {
		environment = "not named"
	}
	if p.Environment != "" {
		environment += fmt.Sprintf(" (database.environment says %s)", p.Environment)
	}
	fmt.Fprintf(table, "environment\t%s\n", environment)
	fmt.Fprintf(table, "epoch\t%s\n", p.State.Epoch)
	fmt.Fprintf(table, "head\t%d\n", p.Head)
	if !guarded {
		fmt.Fprintf(table, "guard\toff: rounds run on a database that was not finalized\n")
	}
	for _, flaw := range p.Flaws {
		fmt.Fprintf(table, "found\t%s\n", flaw)
	}
	if last == nil {
		fmt.Fprintf(table, "last\tnever finalized\n")
	} else {
		fmt.Fprintf(table, "last\t%s on %s (audit %d)\n", strings.TrimPrefix(last.Action, "instance."), last.At.Format(time.RFC3339), last.Deed)
	}
	return table.Flush()
}
