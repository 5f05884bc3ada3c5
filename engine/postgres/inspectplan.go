// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/problem"
)

// manyRows is from how many rows on reading a table from end to end in every round is worth a warning.
const manyRows = 10_000

// planNode is a step of a plan, as far as it is looked at.
type planNode struct {
	Type     string     `json:"Node Type"`
	Schema   string     `json:"Schema"`
	Relation string     `json:"Relation Name"`
	Alias    string     `json:"Alias"`
	Filter   string     `json:"Filter"`
	Join     string     `json:"Join Filter"`
	Hash     string     `json:"Hash Cond"`
	Merge    string     `json:"Merge Cond"`
	Plans    []planNode `json:"Plans"`
}

// walk visits a node and everything below it.
func (n planNode) walk(visit func(planNode)) {
	visit(n)
	for _, child := range n.Plans {
		child.walk(visit)
	}
}

// scan is a table that a plan reads from end to end.
type scan struct {
	relation
	array   []string // columns that the plan compares, which are arrays
	columns []string // the others
	wrapped string   // or an expression around one, as it stands in the plan
	indexed bool     // an index begins with the first of the columns, and the server does without it
}

// scans asks how the server would run the rule over the newest full batch, without running it, and reports
// large tables that it would read from end to end. A plan for real numbers is what a round gets: one for any
// numbers would guess at the size of a batch, and call a good index useless.
func (i *Inspector) scans(ctx context.Context, tx pgx.Tx, rule string, batch int, reached []access) ([]Finding, error) {
	who, err := readAsker(ctx, tx)
	if err != nil {
		return nil, err
	}
	last := max(i.status.Head, int64(batch))
	sql, args := i.store.ruleStatement(rule, []int64{last - int64(batch) + 1})
	args = []any{args[0], last}
	var text []byte
	if err := tx.QueryRow(ctx, `EXPLAIN (VERBOSE, FORMAT JSON) `+sql, args...).Scan(&text); err != nil {
		return nil, granting(ctx, tx, who, rule, located(ruleFailed(err), `EXPLAIN (VERBOSE, FORMAT JSON) `+sql, rule))
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal(text, &plans); err != nil || len(plans) != 1 {
		return nil, fmt.Errorf("read the plan of a recipient rule (%d plans): %w", len(plans), err)
	}
	tables, err := i.scannedTables(ctx, tx, plans[0].Plan)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t := tables[name]
		if t.Rows < manyRows {
			continue
		}
		place := firstPlace(rule, t.relation)
		if at := slices.IndexFunc(reached, func(a access) bool { return a.OID == t.OID }); at >= 0 {
			place = firstPlace(rule, reached[at].named)
		}
		found = append(found, Finding{
			Code: RuleScans, Severity: problem.Warning, Place: place,
			What: fmt.Sprintf("reads %s from end to end in every round, about %.0f rows, whatever the number of events", name, t.Rows),
			Fix:  t.fix(),
		})
	}
	return found, nil
}

// scannedTables adds up the partitions of a table.
func (i *Inspector) scannedTables(ctx context.Context, tx pgx.Tx, plan planNode) (map[string]*scan, error) {
	var nodes []planNode
	var conditions []string
	plan.walk(func(n planNode) {
		conditions = append(conditions, n.Join, n.Hash, n.Merge)
		if n.Type == "Seq Scan" && n.Schema != i.status.Schema {
			nodes = append(nodes, n)
		}
	})
	tables := map[string]*scan{}
	for _, n := range nodes {
		var r relation
		var rows float64
		err := tx.QueryRow(ctx, `SELECT r.oid, n.nspname, r.relname, c.reltuples::float8 FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace AND s.nspname = $1
JOIN pg_catalog.pg_class r ON r.oid = coalesce(pg_catalog.pg_partition_root(c.oid), c.oid)
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace WHERE c.relname = $2`, n.Schema, n.Relation).Scan(&r.OID, &r.Schema, &r.Name, &rows)
		if err != nil {
			return nil, failed("look up the size of "+n.Relation, err)
		}
		t := tables[r.String()]
		if t == nil {
			t = &scan{relation: r}
			tables[r.String()] = t
		}
		t.Rows += max(0, rows)
		columns, wrapped := comparedColumns(n.Alias, conditions) // with the batch, which is what an index is for
		if len(columns) == 0 && wrapped == "" {
			columns, wrapped = comparedColumns(n.Alias, []string{n.Filter})
		}
		t.wrapped = wrapped
		if err := t.compare(ctx, tx, columns); err != nil {
			return nil, err
		}
	}
	return tables, nil
}

// comparedColumns are the columns of an alias that the conditions of a plan name. What is wrapped in a call is none
// that an index on the column could find: the first such call is given as it would stand in an index.
func comparedColumns(alias string, conditions []string) (columns []string, wrapped string) {
	name := regexp.MustCompile(`(?:^|[^\w".])("?` + regexp.QuoteMeta(alias) + `"?\.)("(?:[^"]|"")+"|\w+)`)
	for _, condition := range conditions {
		for _, at := range name.FindAllStringSubmatchIndex(condition, -1) {
			column := condition[at[4]:at[5]]
			call := callAround.FindStringIndex(condition[:at[2]])
			if call == nil {
				columns = append(columns, unquoted(column))
				continue
			}
			inner := condition[call[0]:at[2]] + column
			if rest := condition[at[5]:]; wrapped == "" && strings.Count(inner, "(") == 1 && strings.HasPrefix(rest, ")") {
				wrapped = inner + ")"
			} else if wrapped == "" {
				wrapped = "..."
			}
		}
	}
	slices.Sort(columns)
	return slices.Compact(columns), wrapped
}

// callAround is the beginning of a call at the end of a text. A parenthesis alone is none: the server puts some
// around casts.
var callAround = regexp.MustCompile(`[\w."]+\(+$`)

// compare sorts the columns by what kind of index could find them.
func (t *scan) compare(ctx context.Context, tx pgx.Tx, columns []string) error {
	for _, column := range columns {
		var array *bool
		err := tx.QueryRow(ctx, `SELECT bool_or(t.typcategory = 'A') FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = $1 AND a.attname = $2`, t.OID, column).Scan(&array)
		if err != nil {
			return failed("look up the column "+column, err)
		}
		switch {
		case array == nil, slices.Contains(t.array, column), slices.Contains(t.columns, column):
		case *array:
			t.array = append(t.array, column)
		default:
			t.columns = append(t.columns, column)
		}
	}
	if len(t.columns) == 0 {
		return nil
	}
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_index x
JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
WHERE x.indrelid = $1 AND a.attname = $2 AND x.indpred IS NULL AND x.indisvalid)`, t.OID, t.columns[0]).Scan(&t.indexed)
	return failed("look for an index of "+t.String(), err)
}

// fix is an index that could serve. An element of an array is found by containment alone.
func (t *scan) fix() string {
	switch {
	case len(t.array) > 0:
		c := quoted(t.array[0])
		return fmt.Sprintf("compare with %s @> ARRAY[...], and run: CREATE INDEX CONCURRENTLY ON %s USING gin (%s)", c, t.sql(), c)
	case t.wrapped == "...":
		return "compare a column of it with the batch as it is, and give that column an index"
	case t.wrapped != "":
		return fmt.Sprintf("compare the column as it is, or run: CREATE INDEX CONCURRENTLY ON %s ((%s))", t.sql(), t.wrapped)
	case t.indexed:
		return "it has an index that begins with " + quoted(t.columns[0]) + ", which the server takes for no gain: narrow down what is compared, as few rows of the table as an event needs"
	case len(t.columns) > 0:
		names := make([]string, len(t.columns))
		for i, c := range t.columns {
			names[i] = quoted(c)
		}
		return fmt.Sprintf("run: CREATE INDEX CONCURRENTLY ON %s (%s)", t.sql(), strings.Join(names, ", "))
	default:
		return "compare a column of it with the batch, and give that column an index"
	}
}

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// quoted is a name as a person would write it.
func quoted(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	return quote(name)
}
