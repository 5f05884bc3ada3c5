// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/problem"
)

// CheckDatabase compares a configuration with the database that it names and reports everything that would
// stop a start or surprise after it, each at its place in the file. It changes nothing. It connects as
// database.url does. Where that does not lead in, which is a problem of its own, the rest is looked at as
// database.admin_url; an error means that this does not lead in either, or that the connection broke.
//
// Handler rules are not looked at: they belong to the program that registers them.
func CheckDatabase(ctx context.Context, cfg *config.Config) (problem.List, error) {
	inspector, err := postgres.Inspect(ctx, postgres.InspectOptions{
		MigrateOptions: MigrateOptions(cfg), URL: cfg.Database.URL.Reveal(),
	})
	if err != nil {
		return nil, err
	}
	defer inspector.Close()
	d := &databaseCheck{config: cfg, status: inspector.Status(), barred: inspector.Barred()}
	if d.barred != nil {
		what, fix := postgres.Advice(d.barred)
		d.refuse("database.url", "no-connection", "database.url does not lead in, so the engine cannot run (the rest was looked at as database.admin_url): "+what, fix)
	}
	queries := slices.ContainsFunc(cfg.Consumers, func(c config.Consumer) bool { return c.Recipients.Rule == config.RuleQuery })
	for _, unseen := range inspector.Unseen() {
		if queries || !unseen.Rules {
			d.warn("database.url", "not-looked-at", unseen.What, unseen.Fix)
		}
	}
	d.server()
	d.schema()
	d.rights()
	d.room()
	d.installation()
	d.cursors()
	if err := d.poolers(ctx); err != nil {
		return d.problems, err
	}
	if err := d.ownCursors(ctx, inspector); err != nil {
		return d.problems, err
	}
	err = d.rules(ctx, inspector)
	d.problems.Sort()
	return d.problems, err
}

// ownCursors looks at the tables that a finalize would move: that it is needed is no moment to find a typing error.
func (d *databaseCheck) ownCursors(ctx context.Context, inspector *postgres.Inspector) error {
	for i, table := range restoreOptions(d.config, nil).Cursors {
		found, err := inspector.CursorTable(ctx, table, d.config.Database.Admin().Reveal())
		if err != nil {
			return err
		}
		for _, f := range found {
			d.add(f.Severity, fmt.Sprintf("restore.cursors[%d].table", i), string(f.Code), f.What, f.Fix)
		}
	}
	return nil
}

// rules looks at every query. One that cannot be asked about, since it runs into a time limit for instance, does
// not hide the others.
func (d *databaseCheck) rules(ctx context.Context, inspector *postgres.Inspector) error {
	for i, c := range d.config.Consumers {
		if c.Recipients.Rule != config.RuleQuery {
			continue
		}
		found, err := inspector.Rule(ctx, c.Recipients.Query, c.Batch)
		switch {
		case err != nil && (ctx.Err() != nil || !inspector.Alive()):
			return fmt.Errorf("look at the query of consumer %q: %w", c.Name, err)
		case err != nil:
			d.warn(fmt.Sprintf("consumers[%d].recipients.query", i), "not-looked-at", fmt.Sprintf("the query of consumer %q could not be tried: %v", c.Name, err),
				"look again; when it stays so, see what the query waits for, and make it faster or raise database.statement_timeout")
		}
		for _, f := range found {
			d.problems = append(d.problems, ruleProblem(d.config, i, f))
		}
	}
	return nil
}

// ruleProblem puts a finding of the database where the rule is written.
func ruleProblem(cfg *config.Config, consumer int, f postgres.Finding) problem.Problem {
	path := fmt.Sprintf("consumers[%d].recipients.query", consumer)
	at := cfg.At(path)
	if f.Place > 0 {
		at = cfg.Inside(path, f.Place-1)
	}
	return problem.Problem{
		At: at, Severity: f.Severity, Code: string(f.Code), Fix: f.Fix,
		What: fmt.Sprintf("the query of consumer %q %s", cfg.Consumers[consumer].Name, f.What),
	}
}

// databaseCheck collects what the state of a database means for a configuration.
type databaseCheck struct {
	config   *config.Config
	status   postgres.Status
	barred   error // why database.url does not lead in
	problems problem.List
}

func (d *databaseCheck) add(severity problem.Severity, path, code, what, fix string) {
	d.problems = append(d.problems, problem.Problem{At: d.config.At(path), Severity: severity, Code: code, What: what, Fix: fix})
}

func (d *databaseCheck) refuse(path, code, what, fix string) {
	d.add(problem.Error, path, code, what, fix)
}

func (d *databaseCheck) warn(path, code, what, fix string) {
	d.add(problem.Warning, path, code, what, fix)
}

// server reports what no migration mends.
func (d *databaseCheck) server() {
	server := d.status.Server
	switch {
	case server.TooOld():
		d.refuse("database.url", "old-server", fmt.Sprintf("the server is PostgreSQL %d, and version %d is the oldest that the engine runs on", server.Version, postgres.OldestServer), "upgrade the server")
	case server.TooNew():
		d.warn("database.url", "new-server", fmt.Sprintf("the server is PostgreSQL %d, and this engine was tested up to %d", server.Version, postgres.NewestServer), "look for a newer engine")
	}
	if server.Encoding != "UTF8" {
		d.refuse("database.url", "bad-encoding", fmt.Sprintf("the database has the encoding %s, and events are UTF-8", server.Encoding), "create another database with ENCODING 'UTF8' TEMPLATE template0")
	}
	if server.Standby {
		d.refuse("database.url", "standby", "the server is a standby and takes no changes", "connect to the primary")
	}
	if app := d.config.Database.Roles.App; app != "" && d.config.Database.URL != "" && server.Role != app && d.barred == nil {
		d.warn("database.roles.app", "other-role", fmt.Sprintf("the connection is that of the role %s, and the rights are given to %s", server.Role, app),
			fmt.Sprintf("connect as %s where the engine runs, or name %s here", app, server.Role))
	}
}

// schema reports migrations that are missing, the engine's and River's.
func (d *databaseCheck) schema() {
	s := d.status
	if s.TooOld != nil {
		d.refuse("database.schema", "old-engine", s.TooOld.Error(), "")
	}
	pending := s.Pending()
	switch {
	case s.Closed: // the rights below say so
	case !s.Exists:
		d.refuse("database.schema", "missing-migration", fmt.Sprintf("the database has no schema %q with the engine's tables", s.Schema), "run `engine migrate up`")
	case len(pending) > 0:
		d.refuse("database.schema", "missing-migration", fmt.Sprintf("the schema %q lacks %s", s.Schema, strings.Join(pending, ", ")), "run `engine migrate up`")
	}
	if s.JobsVersion < s.JobsNeeded {
		fix := fmt.Sprintf("run `river migrate-up --schema %s`, or set jobs.migrate: true and run `engine migrate up`", d.config.Jobs.Schema)
		if d.config.Jobs.Migrate {
			fix = "run `engine migrate up`"
		}
		has := fmt.Sprintf("has version %d of River's tables", s.JobsVersion)
		if s.JobsVersion == 0 {
			has = "has no tables of River"
		}
		d.refuse("jobs.schema", "old-river", fmt.Sprintf("the schema %q %s, and version %d is needed", d.config.Jobs.Schema, has, s.JobsNeeded), fix)
	}
	for i, c := range d.config.Consumers {
		for _, n := range s.Names {
			if n.Name == c.Name && !n.Known && s.Exists {
				fix := "run `engine migrate up` with this file"
				if doubt := s.Doubt(); doubt != nil {
					fix = doubt.Fix()
				}
				d.refuse(fmt.Sprintf("consumers[%d].name", i), "unknown-name", fmt.Sprintf("the database does not know the consumer %q, so it can have no cursor", c.Name), fix)
			}
		}
	}
}

// rights reports roles that are not there and rights that they lack. Those on a schema that is about to be made
// come with it.
func (d *databaseCheck) rights() {
	for _, role := range d.status.AbsentRoles {
		d.refuse("database.roles", "missing-role", fmt.Sprintf("the server has no role %q", role), "run `engine migrate up --bootstrap`, or give the output of `engine migrate sql` to whoever may create roles")
	}
	for _, n := range d.status.Missing {
		if !d.status.Exists && !(d.status.Closed && strings.HasPrefix(n.Do, "GRANT USAGE ON SCHEMA")) {
			continue // of a closed schema, nothing is known but that
		}
		fix := "run `engine migrate up`, or: " + n.Do
		if d.config.Database.Roles.App == "" && n.Role == d.status.App {
			fix = fmt.Sprintf("name the role in database.roles.app and run `engine migrate up`, or: %s", n.Do)
		}
		switch {
		case n.Stops && strings.Contains(n.Do, " ON FUNCTION pg_catalog."):
			d.refuse("database.restore_guard", "blind-guard", fmt.Sprintf("the role %s may not read the identity of the server, so a restore would not be noticed, and the engine does no work", n.Role),
				"run `engine migrate up --bootstrap` as an administrator, or: "+n.Do)
		case n.Stops:
			right, _, _ := strings.Cut(strings.TrimPrefix(n.Do, "GRANT "), " TO ")
			d.refuse("database.roles", "missing-right", fmt.Sprintf("the role %s lacks %s", n.Role, right), fix)
		}
	}
}

// room reports a counter and partitions that are not as they should be.
func (d *databaseCheck) room() {
	s := d.status
	for _, err := range s.Refused {
		var gone *postgres.MissingRowError
		var behind *postgres.CounterBehindError
		switch {
		case errors.As(err, &gone):
			d.missingRow(gone)
		case errors.As(err, &behind):
			d.refuse("database.schema", "counter-behind", err.Error(), "")
		}
	}
	wanted := d.config.Sync.PartitionsAhead
	switch {
	case s.UpperBound == 0:
	case s.UpperBound <= s.Head+1:
		d.refuse("sync.partitions_ahead", "no-partition", fmt.Sprintf("the event log has no partition for number %d: appending fails", s.Head+1), "run `engine migrate up`; a running worker makes partitions ahead")
	case s.Ahead < wanted:
		d.warn("sync.partitions_ahead", "few-partitions", fmt.Sprintf("%d of %d partitions stand ready after the one in use", s.Ahead, wanted), "run `engine migrate up`; a running worker makes them too")
	}
}

func (d *databaseCheck) missingRow(gone *postgres.MissingRowError) {
	d.refuse("database.schema", "missing-row", fmt.Sprintf("the table %s is empty, and its one row is %s", gone.Table, gone.Holds), gone.Fix)
}

// installation compares what the database says that it is.
func (d *databaseCheck) installation() {
	i := d.status.Installation
	if gone := d.status.Emptied(); gone != nil {
		d.missingRow(gone)
	}
	if !i.Exists {
		return
	}
	if want := d.config.Database.Environment; want != "" && i.Environment != "" && want != i.Environment {
		d.refuse("database.environment", "other-environment", fmt.Sprintf("environment is %q, and the database says %q", want, i.Environment), "connect to the right database, or write what it says; for a copy run `engine restore finalize --force`, and for an installation that is only to be called otherwise `engine migrate up --new-environment`")
	}
	if !i.Same && d.config.Database.Guarded() {
		d.refuse("database.restore_guard", "other-history", "the server is not the one whose history the cursors follow: it was restored or promoted, and no round runs", "stop the producers and run `engine restore finalize`")
	}
}

// cursors reports those of consumers that are no longer declared.
func (d *databaseCheck) cursors() {
	orphans, without := d.status.Orphans()
	for _, o := range orphans {
		is := fmt.Sprintf("consumer %q is not declared and has a cursor, with a lag of %d", o.Name, d.status.Lag(o))
		if len(orphans) == 1 && len(without) == 1 {
			next := without[0].Name
			d.warn(d.nameOf(next), "renamed-consumer", fmt.Sprintf("%s, while %q has none: this looks like a rename, and a start would skip those events", is, next),
				fmt.Sprintf("run `engine consumers rename %s %s`, or `engine consumers retire %s --reason TEXT` when it is none", o.Name, next, o.Name))
			continue
		}
		d.problems = append(d.problems, problem.Problem{
			At: d.config.KeyAt("consumers"), Severity: problem.Warning, Code: "removed-consumer", What: is,
			Fix: fmt.Sprintf("declare it again, or run `engine consumers retire %s --reason TEXT`", o.Name),
		})
	}
}

// nameOf is the path of the name of a declared consumer.
func (d *databaseCheck) nameOf(name string) string {
	for i, c := range d.config.Consumers {
		if c.Name == name {
			return fmt.Sprintf("consumers[%d].name", i)
		}
	}
	return "consumers"
}

// poolers looks at each connection that has to be a session of the server's own.
func (d *databaseCheck) poolers(ctx context.Context) error {
	database := d.config.Database
	listen := "database.url"
	if database.ListenURL != "" {
		listen = "database.listen_url"
	}
	var pooled bool
	var err error
	if listen != "database.url" || d.barred == nil {
		pooled, err = postgres.Pooled(ctx, database.Listen().Reveal(), database.StatementTimeout)
	}
	if err != nil {
		d.warn(listen, "not-looked-at", fmt.Sprintf("the connection for LISTEN was not made: %v", err), "check it from where the engine runs")
	}
	if pooled {
		d.warn(listen, "pooled-connection", "this leads through a pooler in transaction mode, where LISTEN never hears anything: consumers would wake by polling alone", "give database.listen_url a connection to the server itself")
	}
	if database.AdminURL == "" {
		if pooled && listen == "database.url" {
			d.warn("database.admin_url", "pooled-connection", "migrate would go through a pooler in transaction mode, where its lock and its role get lost", "give database.admin_url a connection to the server itself")
		}
		return nil
	}
	pooled, err = postgres.Pooled(ctx, database.AdminURL.Reveal(), database.StatementTimeout)
	if err != nil {
		d.warn("database.admin_url", "not-looked-at", fmt.Sprintf("the connection of migrate was not made: %v", err), "check it from where migrate runs")
	}
	if pooled {
		d.warn("database.admin_url", "pooled-connection", "this leads through a pooler in transaction mode, where the lock and the role of migrate get lost", "name the server itself")
	}
	return ctx.Err()
}
