// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/bothy/engine/problem"
)

// Finding is one thing that the database says about a query rule.
type Finding struct {
	Code     RuleCode
	Severity problem.Severity
	What     string // what the rule does, as "the query of consumer x ..." goes on
	Fix      string
	Place    int // the character of the rule, counted from 1; 0 for the rule as a whole
}

// InspectOptions say what is looked at.
type InspectOptions struct {
	MigrateOptions        // what the database should be like; AdminURL stands in where URL does not lead in
	URL            string // the connection of the server process
}

// Inspector looks at a database and changes nothing: it reads the catalog, and asks about query rules in
// read-only transactions that it rolls back.
//
// It acts as the role of the app. Where the connection is another role's, it changes over to the app inside
// each transaction; where it may not, it asks for the rights of the app by name.
type Inspector struct {
	conn   *pgx.Conn
	store  *Store           // for the text of statements alone: it has no pool
	limits [2]time.Duration // of a statement, and of its wait for a lock
	status Status
	acts   string // the role that rules are asked about as
	path   string // the search path of the app, when the connection has another
	barred error  // why the connection of the server process was refused; another one is used then
	blind  bool   // the log cannot be read: no rule can be tried
	unseen []Unseen
}

// Unseen is something that could not be looked at.
type Unseen struct {
	What  string // what, and why
	Fix   string
	Rules bool // only of interest where there are query rules
}

// Inspect connects. The caller closes the Inspector.
func Inspect(ctx context.Context, o InspectOptions) (*Inspector, error) {
	all, err := render(o.Schema)
	if err != nil {
		return nil, err
	}
	i := &Inspector{limits: [2]time.Duration{o.StatementTimeout, o.LockTimeout}, store: &Store{schema: quote(o.Schema), options: Options{Schema: o.Schema}, oneStatement: pgx.QueryExecModeDescribeExec}}
	i.conn, err = connectToLook(ctx, o.URL, o.StatementTimeout)
	if err != nil && o.AdminURL != o.URL {
		i.barred = err
		if i.conn, err = connectToLook(ctx, o.AdminURL, o.StatementTimeout); err != nil {
			return nil, fmt.Errorf("database.url: %w; database.admin_url: %w", i.barred, err)
		}
		if err := i.nameApp(ctx, &o); err != nil {
			i.Close()
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	if err := i.prepare(ctx, o.MigrateOptions, all); err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}

// nameApp lets the role that the other connection would have had stand for the app, where no other is named and
// the server has it.
func (i *Inspector) nameApp(ctx context.Context, o *InspectOptions) error {
	config, err := pgx.ParseConfig(o.URL)
	if err != nil || o.App != "" {
		return nil //nolint:nilerr // that it cannot be read was the reason to look as another
	}
	var known bool
	err = i.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1)`, config.User).Scan(&known)
	if known {
		o.App = config.User
	}
	return failed("look for the role of database.url", err)
}

// connectToLook opens a connection that works through any pooler: nothing is set at its start, which PgBouncer
// refuses, and no statement is kept for later, which another process of the server would not know. So the limit of a
// statement is that of the wait for its answer.
func connectToLook(ctx context.Context, url string, limit time.Duration) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, unreadableURL(err)
	}
	config.RuntimeParams["application_name"] = "bothy-validate"
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	if limit > 0 {
		usePatience(config, limit+replyMargin)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, unreached(err)
	}
	return conn, nil
}

// Close ends the connection.
func (i *Inspector) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	_ = i.conn.Close(ctx) // nothing is in flight
}

// Alive reports whether the connection still holds, so that the next look is worth a try.
func (i *Inspector) Alive() bool { return !i.conn.IsClosed() }

// Barred is why the connection of the server process was not made, or nil. All was looked at as the
// administrator then.
func (i *Inspector) Barred() error { return i.barred }

// Status is how far the database is from what the options of a migration want.
func (i *Inspector) Status() Status { return i.status }

// Unseen is what could not be looked at.
func (i *Inspector) Unseen() []Unseen { return i.unseen }

func (i *Inspector) unsee(rules bool, fix, what string, args ...any) {
	i.unseen = append(i.unseen, Unseen{What: fmt.Sprintf(what, args...), Fix: fix, Rules: rules})
}

func (i *Inspector) prepare(ctx context.Context, o MigrateOptions, all []migration) error {
	if o.Owner == "" {
		// without a name, it is whoever made the schema, and not whoever looks
		err := i.conn.QueryRow(ctx, `SELECT coalesce((SELECT pg_catalog.pg_get_userbyid(nspowner)::text FROM pg_catalog.pg_namespace WHERE nspname = $1), '')`, o.Schema).Scan(&o.Owner)
		if err != nil {
			return failed("look for the schema "+o.Schema, err)
		}
	}
	o.PartitionSize, o.PartitionsAhead = cmp.Or(o.PartitionSize, DefaultPartitionSize), cmp.Or(o.PartitionsAhead, DefaultPartitionsAhead)
	var err error
	if i.status, err = readStatus(ctx, i.conn, o, all); err != nil {
		return err
	}
	if err := i.become(ctx); err != nil {
		return err
	}
	sees := false
	if i.status.counted {
		err = i.conn.QueryRow(ctx, `SELECT pg_catalog.has_schema_privilege($1::name, $2, 'USAGE') AND coalesce(pg_catalog.has_table_privilege($1::name, pg_catalog.to_regclass($3), 'SELECT'), false)`,
			i.acts, o.Schema, quote(o.Schema)+".event_log").Scan(&sees)
	}
	if i.blind = !sees; i.blind {
		i.unsee(true, "run `engine migrate up`, then look again", "no query rule was tried: the event log is not there, or the role %s may not read it", i.acts)
	}
	return failed("look for the event log", err)
}

// become finds the role to act as.
func (i *Inspector) become(ctx context.Context) error {
	i.acts = i.status.Server.Role
	if i.acts == i.status.App {
		return nil
	}
	if slices.Contains(i.status.AbsentRoles, i.status.App) {
		i.unsee(true, "create the role, then look again", "the role %s is not there: rules were tried as %s, and nobody knows what the other will be allowed to read", i.status.App, i.acts)
		return nil
	}
	may, err := mayBecome(ctx, i.conn, i.status.Server.Version, i.status.App)
	if err != nil {
		return err
	}
	if !may {
		i.unsee(true, "connect as "+i.status.App, "the connection is that of %s, which may not act as %s: rules were tried as the first, and the rights of the second asked for by name", i.acts, i.status.App)
		return nil
	}
	i.acts = i.status.App
	i.path, err = i.searchPath(ctx)
	return err
}

// searchPath is what the app's own sessions begin with, where somebody has set it for the role. SET ROLE does
// not bring such settings along.
func (i *Inspector) searchPath(ctx context.Context) (string, error) {
	var path string
	err := i.conn.QueryRow(ctx, `SELECT substr(setting, length('search_path=') + 1) FROM pg_catalog.pg_db_role_setting s
CROSS JOIN unnest(s.setconfig) AS setting
WHERE setting LIKE 'search\_path=%' AND s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
AND s.setrole IN (0, (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = $1))
ORDER BY s.setrole <> 0 AND s.setdatabase <> 0 DESC, s.setrole <> 0 DESC LIMIT 1`, i.status.App).Scan(&path)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return path, failed("look up the search path of the role "+i.status.App, err)
}

// asked runs look in a read-only transaction that is rolled back, as a role.
func (i *Inspector) asked(ctx context.Context, role string, look func(pgx.Tx) error) error {
	tx, err := i.conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return failed("look at the database", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	settings := []string{`SET LOCAL statement_timeout = '` + milliseconds(i.limits[0]) + `'; SET LOCAL lock_timeout = '` + milliseconds(i.limits[1]) + `'; SET LOCAL jit = off`}
	if i.path != "" {
		settings = append(settings, `SELECT pg_catalog.set_config('search_path', `+literal(i.path)+`, true)`)
	}
	if role != i.status.Server.Role {
		settings = append(settings, `SET LOCAL ROLE `+quote(role))
	}
	if _, err := tx.Exec(ctx, strings.Join(settings, "; "), pgx.QueryExecModeSimpleProtocol); err != nil {
		return failed("look at the database", err)
	}
	return look(tx)
}

// Rule looks at a query rule of a consumer whose rounds read batch events: everything that a start checks,
// and what only shows when it is too late. An error is one of the connection.
func (i *Inspector) Rule(ctx context.Context, rule string, batch int) ([]Finding, error) {
	if i.blind {
		return nil, nil
	}
	relations, err := i.relations(ctx, rule)
	if err != nil {
		return finding(err)
	}
	reached := i.reach(relations, "")
	found, refused, err := i.try(ctx, rule, batch, reached)
	if err != nil {
		return nil, err
	}
	rights, err := i.rightsOf(ctx, rule, reached, len(refused) == 0)
	if err == nil && len(rights) == 0 && isUnreadable(refused) {
		// what the refusal names was read by the rule itself, and not only through a view
		rights, err = i.rightsOf(ctx, rule, i.reach(relations, refused[0].What), false)
	}
	if err != nil {
		return nil, err
	}
	inside, err := i.insideFunctions(ctx, rule)
	if err != nil {
		return nil, err
	}
	hidden, err := i.hidden(ctx, rule, slices.Concat(reached, inside))
	if err != nil {
		return nil, err
	}
	return slices.Concat(i.told(refused, rights), found, quotedRecipient(rule), hidden, neverAnalysed(rule, reached)), nil
}

// try asks about the rule as the role that acts. What it refuses stands apart from what it merely finds.
func (i *Inspector) try(ctx context.Context, rule string, batch int, reached []access) (found, refused []Finding, err error) {
	err = i.asked(ctx, i.acts, func(tx pgx.Tx) (err error) {
		found, err = volatileCalls(ctx, tx, rule)
		if err != nil {
			return err
		}
		if err := i.store.checkRule(ctx, tx, rule); err != nil {
			return err
		}
		scans, err := i.scans(ctx, tx, rule, batch, reached)
		found = append(scans, found...)
		return err
	})
	refused, err = finding(err)
	return found, refused, err
}

// told says once what the server refused: a missing right is better told by the grant that gives it, and one
// that another role than the app lacks is no fault of the rule.
func (i *Inspector) told(refused, rights []Finding) []Finding {
	switch {
	case !isUnreadable(refused):
		return append(refused, rights...)
	case len(rights) > 0:
		return rights
	case i.barred != nil && i.acts == i.status.App && i.acts == i.status.Server.Role:
		return []Finding{{
			Code: RuleUntried, Severity: problem.Warning,
			What: fmt.Sprintf("was read and not tried: the role %s of database.admin_url may not read what it reads, and who will read it is not known", i.acts),
			Fix:  "mend database.url, then look again",
		}}
	case i.acts != i.status.App:
		return []Finding{{
			Code: RuleUntried, Severity: problem.Warning,
			What: fmt.Sprintf("was read and not tried: the role %s may not read what it reads, which the role %s may", i.acts, i.status.App),
			Fix:  "connect as " + i.status.App,
		}}
	default:
		return refused
	}
}

// finding is what the server refused as a finding: each round would meet it again. An error of the connection,
// or of a limit that another moment may keep, is passed on.
func finding(err error) ([]Finding, error) {
	wrong, ok := errors.AsType[*RuleError](err)
	if !ok {
		answer, answered := errors.AsType[*pgconn.PgError](err)
		if !answered || passing(answer.Code) {
			return nil, err
		}
		wrong = &RuleError{
			Code: RuleRefused, What: "is refused by the server (SQLSTATE " + answer.Code + ")", cause: err,
			Fix: "see to what the server says: each round would meet it",
		}
	}
	what := wrong.What
	if answer, ok := errors.AsType[*pgconn.PgError](wrong.cause); ok {
		what += ": " + answer.Message
	}
	return []Finding{{Code: wrong.Code, Severity: problem.Error, What: what, Fix: wrong.Fix, Place: wrong.Place}}, nil
}
