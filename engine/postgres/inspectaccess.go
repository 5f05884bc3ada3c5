// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/problem"
)

// relation is a table or view that a rule reads, itself or through a view.
type relation struct {
	OID     uint32
	Schema  string
	Name    string
	Kind    string // pg_class.relkind
	Owner   string
	Secured bool // row-level security is on
	Forced  bool // also for its owner
	Rows    float64
	Size    int64
	Invoker bool     // a view that reads with the rights of whoever asks
	Behind  []uint32 // what a view reads
}

func (r relation) String() string { return r.Schema + "." + r.Name }

// sql is its name in a statement.
func (r relation) sql() string { return quote(r.Schema) + "." + quote(r.Name) }

// relations finds what a rule reads. The server locks each table when it reads the text of a statement, also
// those behind views, and before it asks for any right: so the locks name them, whoever asks.
func (i *Inspector) relations(ctx context.Context, rule string) ([]relation, error) {
	look := func(found *[]relation) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			if _, err := i.store.describe(ctx, tx, rule); err != nil {
				return err
			}
			rows, err := tx.Query(ctx, `SELECT c.oid, n.nspname, c.relname, c.relkind::text, pg_catalog.pg_get_userbyid(c.relowner)::text,
	c.relrowsecurity, c.relforcerowsecurity, c.reltuples::float8,
	CASE WHEN c.relkind IN ('r', 'm') THEN coalesce(pg_catalog.pg_relation_size(c.oid), 0) ELSE 0 END,
	coalesce((SELECT option_value::bool FROM pg_catalog.pg_options_to_table(c.reloptions) WHERE option_name = 'security_invoker'), false),
	coalesce((SELECT array_agg(DISTINCT d.refobjid) FROM pg_catalog.pg_rewrite w JOIN pg_catalog.pg_depend d
		ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = w.oid AND d.refclassid = 'pg_catalog.pg_class'::regclass
		WHERE w.ev_class = c.oid AND d.refobjid <> c.oid AND c.relkind = 'v'), '{}')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid IN (SELECT l.relation FROM pg_catalog.pg_locks l WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation')
AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
AND n.nspname <> $1 AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' ORDER BY 2, 3`, i.status.Schema)
			if err != nil {
				return failed("look at the tables of a recipient rule", err)
			}
			*found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[relation])
			return failed("look at the tables of a recipient rule", err)
		}
	}
	var found []relation
	err := i.asked(ctx, i.acts, look(&found))
	if refused, _ := finding(err); i.acts != i.status.Server.Role && isUnreadable(refused) {
		// the role may not even look into a schema: its rights will say so, table by table
		err = i.asked(ctx, i.status.Server.Role, look(&found))
	}
	return found, err
}

func isUnreadable(refused []Finding) bool {
	return len(refused) > 0 && refused[0].Code == RuleUnreadable
}

// access is one relation with the role that reads it: a view reads what is behind it with the rights of its
// owner.
type access struct {
	relation
	role    string
	through string   // the view or the function, or empty
	named   relation // what the rule itself names on the way to it
	at      int      // where the rule calls what reads it; 0 when it names it
}

// placeIn is where a rule reads the relation, or what leads to it.
func (a access) placeIn(rule string) int {
	if a.at > 0 {
		return a.at
	}
	return firstPlace(rule, a.named)
}

// reach follows the views. What the rule names itself is read by the app, and so is the relation whose name ends
// a refusal of the server.
func (i *Inspector) reach(relations []relation, refusal string) []access {
	byOID := map[uint32]relation{}
	behind := map[uint32]bool{}
	for _, r := range relations {
		byOID[r.OID] = r
		for _, oid := range r.Behind {
			behind[oid] = true
		}
	}
	var all []access
	seen := map[string]bool{}
	var visit func(a access)
	visit = func(a access) {
		key := fmt.Sprintf("%d %s", a.OID, a.role)
		if seen[key] {
			return
		}
		seen[key] = true
		all = append(all, a)
		reader := a.role
		if !a.Invoker {
			reader = a.Owner
		}
		for _, oid := range a.Behind {
			if next, ok := byOID[oid]; ok {
				visit(access{relation: next, role: reader, through: "the view " + a.String(), named: a.named})
			}
		}
	}
	for _, r := range relations {
		if !behind[r.OID] || strings.HasSuffix(refusal, " "+r.Name) {
			visit(access{relation: r, role: i.status.App, named: r})
		}
	}
	return all
}

// rightsOf lists what the roles that read may not. proven says that the server has let the app do all of it.
func (i *Inspector) rightsOf(ctx context.Context, rule string, reached []access, proven bool) ([]Finding, error) {
	if proven && i.acts == i.status.App || slices.Contains(i.status.AbsentRoles, i.status.App) {
		return nil, nil
	}
	var found []Finding
	for _, a := range reached {
		var usage, whole, some bool
		err := i.conn.QueryRow(ctx, `SELECT pg_catalog.has_schema_privilege($1::name, $2, 'USAGE'),
	pg_catalog.has_table_privilege($1::name, $3::oid, 'SELECT'), pg_catalog.has_any_column_privilege($1::name, $3::oid, 'SELECT')`,
			a.role, a.Schema, a.OID).Scan(&usage, &whole, &some)
		if err != nil {
			return nil, failed("ask for the rights on "+a.String(), err)
		}
		through := ""
		if a.through != "" {
			through = " through " + a.through
		}
		add := func(severity problem.Severity, what string, grant right) {
			found = append(found, Finding{Code: RuleUnreadable, Severity: severity, Place: firstPlace(rule, a.named), What: what + through, Fix: "run: " + grant.sql()})
		}
		if !usage && a.through == "" {
			add(problem.Error, fmt.Sprintf("reads %s, and the role %s may not use the schema %s", a, a.role, a.Schema), right{"SCHEMA", quote(a.Schema), "USAGE", a.role})
		}
		grant := right{"TABLE", a.sql(), "SELECT", a.role}
		switch {
		case whole:
		case !some:
			add(problem.Error, fmt.Sprintf("reads %s, and the role %s may not", a, a.role), grant)
		case a.through == "" && i.acts == i.status.App:
			add(problem.Error, fmt.Sprintf("reads %s, of which the role %s may read only other columns", a, a.role), grant)
		case a.through == "":
			add(problem.Warning, fmt.Sprintf("reads %s, of which the role %s may read only some columns", a, a.role), grant)
		}
	}
	functions, err := i.functionsOf(ctx, rule)
	return append(found, functions...), err
}

// functionsOf lists the functions that a rule calls and the app may not.
func (i *Inspector) functionsOf(ctx context.Context, rule string) ([]Finding, error) {
	lacking, err := lackingRights(ctx, i.conn, i.status.App, rule, "")
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, r := range lacking {
		if r.kind != "FUNCTION" {
			continue
		}
		name := strings.NewReplacer(`"`, "").Replace(r.object)
		name = name[:strings.IndexByte(name, '(')]
		f := Finding{
			Code: RuleUnreadable, Severity: problem.Error, Fix: "run: " + r.sql(),
			What: fmt.Sprintf("calls %s, and the role %s may not", name, r.role),
		}
		for _, w := range words(rule) {
			if w.called && (w.name == name || strings.HasSuffix(name, "."+w.name)) {
				f.Place = w.place
				break
			}
		}
		found = append(found, f)
	}
	return found, nil
}

// firstPlace is where a rule first names a relation; 0 when it never does.
func firstPlace(rule string, r relation) int {
	for _, w := range words(rule) {
		if w.name == r.Name && (w.schema == "" || w.schema == r.Schema) && !w.called {
			return w.place
		}
	}
	return 0
}

// hidden reports tables whose row-level security decides which rows the reading role sees. Such rows are left
// out without a word, and the jobs that they would have given too.
func (i *Inspector) hidden(ctx context.Context, rule string, reached []access) ([]Finding, error) {
	var found []Finding
	for _, a := range reached {
		if !a.Secured || slices.Contains(i.status.AbsentRoles, a.role) {
			continue
		}
		var applies, open, limited bool
		var names []string
		err := i.conn.QueryRow(ctx, `SELECT NOT (u.rolsuper OR u.rolbypassrls) AND ($3 OR NOT pg_catalog.pg_has_role(u.oid, c.relowner, 'USAGE')),
	coalesce(bool_or(p.polpermissive AND pg_catalog.pg_get_expr(p.polqual, p.polrelid) = 'true'), false), coalesce(bool_or(NOT p.polpermissive), false),
	coalesce(array_agg(p.polname::text ORDER BY p.polname) FILTER (WHERE p.polpermissive), '{}')
FROM pg_catalog.pg_roles u CROSS JOIN pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_policy p ON p.polrelid = c.oid AND p.polcmd IN ('r', '*')
	AND EXISTS (SELECT FROM unnest(p.polroles) r WHERE r = 0 OR pg_catalog.pg_has_role(u.oid, r, 'USAGE'))
WHERE u.rolname = $1 AND c.oid = $2 GROUP BY u.rolsuper, u.rolbypassrls, u.oid, c.relowner`, a.role, a.OID, a.Forced).Scan(&applies, &open, &limited, &names)
		if err != nil {
			return nil, failed("look at the row-level security of "+a.String(), err)
		}
		if !applies || open && !limited {
			continue
		}
		f := Finding{
			Code: RuleHidden, Severity: problem.Warning, Place: a.placeIn(rule),
			What: fmt.Sprintf("reads %s%s, whose row-level security decides which rows the role %s sees (%s %s): rows that it hides give no jobs, and nobody is told", a, a.inside(), a.role, plural(len(names), "policy"), strings.Join(names, ", ")),
			Fix:  fmt.Sprintf("let it see all: CREATE POLICY bothy_reads ON %s FOR SELECT TO %s USING (true)", a.sql(), quote(a.role)),
		}
		if limited {
			f.Fix = fmt.Sprintf("let it see all: ALTER ROLE %s BYPASSRLS (a restrictive policy stands above every other)", quote(a.role))
		}
		if len(names) == 0 {
			f.Severity = problem.Error
			f.What = fmt.Sprintf("reads %s%s, whose row-level security shows the role %s no row at all: no policy lets it in", a, a.inside(), a.role)
			if a.at > 0 {
				f.Severity = problem.Warning // the text of a function may name what it does not read
			}
		}
		found = append(found, f)
	}
	return found, nil
}

// largeEnough is from how many bytes on a table that was never analysed is worth a word. A small one is read
// whole in any case, and the server analyses none that has hardly changed.
const largeEnough = 1 << 20

// neverAnalysed reports tables of which the server knows no numbers, so that it can only guess how to read
// them.
func neverAnalysed(rule string, reached []access) []Finding {
	var found []Finding
	seen := map[uint32]bool{}
	for _, a := range reached {
		if a.Rows >= 0 || a.Size < largeEnough || seen[a.OID] {
			continue
		}
		seen[a.OID] = true
		found = append(found, Finding{
			Code: RuleNotAnalysed, Severity: problem.Warning, Place: firstPlace(rule, a.named),
			What: fmt.Sprintf("reads %s, which has %d MB and was never analysed: the server guesses how to read it, and whether it reads it whole cannot be told", a, a.Size>>20),
			Fix:  "run: ANALYZE " + a.sql(),
		})
	}
	return found
}
