// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"strings"
)

// called is a function that a rule calls, itself or through another function.
type called struct {
	OID    uint32
	Schema string
	Name   string
	Owner  string
	AsOwn  bool   // it acts with the rights of its owner
	Body   string // its text: SQL, or a language that holds SQL
}

// mostCalls bounds how many functions are followed, whatever calls what.
const mostCalls = 100

// insideFunctions finds tables with row-level security that the functions of a rule read: neither the locks of a
// rule nor its plan name what a function does when it runs. It goes by the names in the text of each function, so
// it can see a table that is only mentioned, and not one whose name is put together as it runs.
func (i *Inspector) insideFunctions(ctx context.Context, rule string) ([]access, error) {
	type call struct {
		text  string
		role  string
		place word // in the rule: where the way to it begins
	}
	var found []access
	seen := map[uint32]bool{}
	queue := []call{}
	for _, w := range words(rule) {
		if w.called {
			queue = append(queue, call{text: w.source(), role: i.status.App, place: w})
		}
	}
	for len(queue) > 0 && len(seen) < mostCalls {
		at := queue[0]
		queue = queue[1:]
		for _, w := range words(at.text) {
			functions, err := i.functionsNamed(ctx, w)
			if err != nil {
				return nil, err
			}
			for _, f := range functions {
				if seen[f.OID] {
					continue
				}
				seen[f.OID] = true
				role := at.role
				if f.AsOwn {
					role = f.Owner
				}
				tables, err := i.securedIn(ctx, f.Body)
				if err != nil {
					return nil, err
				}
				for _, table := range tables {
					found = append(found, access{relation: table, role: role, through: "the function " + f.Schema + "." + f.Name, at: at.place.place})
				}
				queue = append(queue, call{text: f.Body, role: role, place: at.place})
			}
		}
	}
	return found, nil
}

// source is the word as SQL would call it.
func (w word) source() string {
	if w.schema == "" {
		return quote(w.name) + "()"
	}
	return quote(w.schema) + "." + quote(w.name) + "()"
}

// functionsNamed are the functions that a word can mean, but for those of the system and of languages whose text is
// no SQL.
func (i *Inspector) functionsNamed(ctx context.Context, w word) ([]called, error) {
	if !w.called {
		return nil, nil
	}
	const doing = "look up the functions of a recipient rule"
	rows, err := i.conn.Query(ctx, `SELECT p.oid, n.nspname, p.proname, pg_catalog.pg_get_userbyid(p.proowner)::text, p.prosecdef,
	coalesce(pg_catalog.pg_get_function_sqlbody(p.oid), p.prosrc)
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace JOIN pg_catalog.pg_language l ON l.oid = p.prolang
WHERE p.proname = $1 AND ($2 = '' OR n.nspname = $2) AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', $3)
AND l.lanname NOT IN ('internal', 'c') ORDER BY p.oid`, w.name, w.schema, i.status.Schema)
	if err != nil {
		return nil, failed(doing, err)
	}
	defer rows.Close()
	var found []called
	for rows.Next() {
		var f called
		if err := rows.Scan(&f.OID, &f.Schema, &f.Name, &f.Owner, &f.AsOwn, &f.Body); err != nil {
			return nil, failed(doing, err)
		}
		found = append(found, f)
	}
	return found, failed(doing, rows.Err())
}

// securedIn are the tables with row-level security that a text names.
func (i *Inspector) securedIn(ctx context.Context, text string) ([]relation, error) {
	var schemas, names []string
	for _, w := range words(text) {
		if !w.called {
			schemas, names = append(schemas, w.schema), append(names, w.name)
		}
	}
	const doing = "look at the tables of a function"
	rows, err := i.conn.Query(ctx, `SELECT c.oid, n.nspname, c.relname, pg_catalog.pg_get_userbyid(c.relowner)::text, c.relforcerowsecurity
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relrowsecurity AND c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_'
AND EXISTS (SELECT FROM unnest($1::text[], $2::text[]) w (schema, name) WHERE w.name = c.relname AND w.schema IN ('', n.nspname))
ORDER BY 2, 3`, schemas, names)
	if err != nil {
		return nil, failed(doing, err)
	}
	defer rows.Close()
	var found []relation
	for rows.Next() {
		r := relation{Secured: true}
		if err := rows.Scan(&r.OID, &r.Schema, &r.Name, &r.Owner, &r.Forced); err != nil {
			return nil, failed(doing, err)
		}
		found = append(found, r)
	}
	return found, failed(doing, rows.Err())
}

// inside says through what a relation is read, when the rule does not name it itself.
func (a access) inside() string {
	if strings.HasPrefix(a.through, "the function ") {
		return " through " + a.through
	}
	return ""
}
