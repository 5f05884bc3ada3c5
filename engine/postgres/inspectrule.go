// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/bothy/engine/problem"
)

// RuleCode says what kind of mistake a rule has. It is the code of the problem that an author sees.
type RuleCode string

// What can be wrong with a query rule.
const (
	RuleRefused         RuleCode = "bad-rule"            // the server does not accept the query, or not on this data
	RuleUnknownRelation RuleCode = "unknown-relation"    // it reads a table that is not there
	RuleUnknownColumn   RuleCode = "unknown-column"      // it reads a column that is not there
	RuleBadColumns      RuleCode = "bad-rule-columns"    // it does not give seq and recipient, or not of their types
	RuleWrites          RuleCode = "rule-writes"         // it tries to write or lock
	RuleUnreadable      RuleCode = "unreadable-relation" // the role of the engine may not read what it reads
	RuleHidden          RuleCode = "hidden-rows"         // row-level security hides rows from the role of the engine
	RuleScans           RuleCode = "large-scan"          // it reads a large table from end to end in each round
	RuleNotAnalysed     RuleCode = "never-analysed"      // the server knows nothing of a table that it reads
	RuleVolatile        RuleCode = "volatile-rule"       // it calls a function that may answer differently each time
	RuleQuotes          RuleCode = "quoted-recipient"    // its recipients are JSON with its quotes
	RuleUntried         RuleCode = "not-looked-at"       // the connection may not read what it reads, so nobody tried it
)

// codes of the server that say which word of a query is wrong.
const (
	codeUndefinedTable  = "42P01"
	codeUndefinedColumn = "42703"
	codeInvalidSchema   = "3F000"
)

// ruleEnd is what stands behind a rule in every statement that the engine makes of it.
const ruleEnd = "\n) r"

// place turns the position that the server gives, a character of the whole statement counted from 1, into one
// inside the rule, also from 1; 0 when it lies outside.
func place(statement, rule string, position int32) int {
	length := utf8.RuneCountInString(rule)
	before := utf8.RuneCountInString(strings.TrimSuffix(statement, ruleEnd)) - length
	if at := int(position) - before; position > 0 && at >= 1 && at <= length {
		return at
	}
	return 0
}

// located adds to a RuleError where in the rule the server saw the mistake.
func located(err error, statement, rule string) error {
	wrong, ok := errors.AsType[*RuleError](err)
	if !ok {
		return err
	}
	if answer, ok := errors.AsType[*pgconn.PgError](wrong.cause); ok {
		wrong.Place = place(statement, rule, answer.Position)
	}
	return wrong
}

// checkRule asks the server about a rule, without any data: whether it can be read at all, what columns it
// gives, and then, over an empty batch and exactly as in a round, whether it may be run. tx is rolled back
// by the caller, and after an error it is broken.
func (s *Store) checkRule(ctx context.Context, tx pgx.Tx, rule string) error {
	who, err := readAsker(ctx, tx)
	if err != nil {
		return err
	}
	fields, err := s.describe(ctx, tx, rule)
	if err != nil {
		return err
	}
	if err := checkRuleColumns(ctx, tx, fields, rule); err != nil {
		return err
	}
	sql, args := s.ruleStatement(rule, nil)
	return granting(ctx, tx, who, rule, located(runEmpty(ctx, tx, s.oneStatement, sql, args), sql, rule))
}

// runEmpty runs the statement of a rule over an empty batch, where it must give nothing.
func runEmpty(ctx context.Context, tx pgx.Tx, mode pgx.QueryExecMode, sql string, args []any) error {
	rows, err := tx.Query(ctx, sql, append([]any{mode}, args...)...)
	if err != nil {
		return ruleFailed(err)
	}
	defer rows.Close()
	var seq, recipient any
	if rows.Next() && rows.Scan(&seq, &recipient) == nil {
		return &RuleError{Code: RuleRefused, What: fmt.Sprintf("returned seq %v over an empty batch", seq), Fix: "take seq from the relation batch"}
	}
	if err := rows.Err(); err != nil {
		return ruleFailed(err)
	}
	return nil
}

// describe lets the server read a rule without running it: it names the columns of the rule, whatever they
// are, and asks for no right but that to look into a schema.
func (s *Store) describe(ctx context.Context, tx pgx.Tx, rule string) ([]pgconn.FieldDescription, error) {
	who, err := readAsker(ctx, tx)
	if err != nil {
		return nil, err
	}
	sql, _ := s.ruleStatement(rule, nil)
	sql = strings.Replace(sql, ruleColumns, "SELECT *", 1)
	answer, err := tx.Conn().PgConn().Prepare(ctx, "", sql, nil)
	if err != nil {
		return nil, granting(ctx, tx, who, rule, s.explained(ctx, tx, located(ruleFailed(err), sql, rule)))
	}
	return answer.Fields, nil
}

// explained adds to an unknown table the name that was meant. The statement has failed, so this looks from a
// savepoint's other side: the transaction is rolled back first, which the caller would do next.
func (s *Store) explained(ctx context.Context, tx pgx.Tx, err error) error {
	wrong, ok := errors.AsType[*RuleError](err)
	if !ok || wrong.Code != RuleUnknownRelation || sqlState(wrong.cause) != codeUndefinedTable {
		return err
	}
	if _, rollback := tx.Conn().Exec(ctx, `ROLLBACK AND CHAIN`); rollback != nil {
		return err
	}
	rows, listErr := tx.Query(ctx, `SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' AND n.nspname <> $1 ORDER BY 1`, s.options.Schema)
	if listErr != nil {
		return err
	}
	tables, listErr := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
	if listErr != nil {
		return err
	}
	if near := nearestTable(unknownRelation(wrong.cause), tables); near != "" {
		wrong.Fix = fmt.Sprintf("did you mean %s? Else make the table first, in the database that database.url leads to", near)
	}
	return wrong
}

// quotedName is the name in a message of the server, whatever its language.
var quotedName = regexp.MustCompile(`["«„]([^"»“]+)["»“]`)

func unknownRelation(err error) string {
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		if found := quotedName.FindStringSubmatch(answer.Message); found != nil {
			return found[1]
		}
	}
	return ""
}

// table is a name and the schema that holds it.
type table struct{ Schema, Name string }

// String is the table as a statement has to write it.
func (t table) String() string { return quoted(t.Schema) + "." + quoted(t.Name) }

// nearestTable is the table that was meant, as it has to be written: the same name in another schema or in other
// letters, else one that is spelt alike.
func nearestTable(name string, tables []table) string {
	if name == "" {
		return ""
	}
	schema, last, qualified := strings.Cut(name, ".")
	if !qualified {
		schema, last = "", name
	}
	full, short := make([]string, len(tables)), make([]string, len(tables))
	for i, t := range tables {
		full[i], short[i] = t.Schema+"."+t.Name, t.Name
		if t.Schema == schema && t.Name == last {
			return "" // it is there: something else is wrong
		}
	}
	if i := slices.Index(short, last); i >= 0 {
		return tables[i].String()
	}
	if i := slices.Index(full, problem.Nearest(name, full)); i >= 0 && qualified {
		return tables[i].String()
	}
	if i := slices.Index(short, problem.Nearest(last, short)); i >= 0 {
		return tables[i].String()
	}
	return ""
}

// ruleColumn is one column that a rule gives.
type ruleColumn struct {
	name, kind, category string
	array                bool
}

// checkRuleColumns refuses a rule whose columns are not seq, a whole number, and recipient, a text. The
// statement of a round casts both, so a wrong type would not show there, but in what is stored.
func checkRuleColumns(ctx context.Context, tx pgx.Tx, fields []pgconn.FieldDescription, rule string) error {
	columns, err := readRuleColumns(ctx, tx, fields)
	if err != nil {
		return err
	}
	wrong := func(name, what, fix string) error {
		return &RuleError{Code: RuleBadColumns, What: what, Fix: fix, Place: wordPlace(rule, name)}
	}
	for _, want := range []string{"seq", "recipient"} {
		named := slices.DeleteFunc(slices.Clone(columns), func(c ruleColumn) bool { return c.name != want })
		switch {
		case len(named) == 0:
			return missingColumn(columns, want, rule)
		case len(named) > 1:
			return wrong("", fmt.Sprintf("gives %d columns named %s", len(named), want), "select "+want+" once")
		}
		c := named[0]
		switch {
		case want == "seq" && !slices.Contains([]string{"bigint", "integer", "smallint"}, c.kind):
			return wrong("seq", fmt.Sprintf("gives seq as %s, and the number of an event is bigint", c.kind), "select b.seq from the relation batch")
		case want == "recipient" && c.array:
			return wrong("recipient", fmt.Sprintf("gives recipient as %s, and each row is for one recipient", c.kind), "write unnest(...) AS recipient: one row for each element")
		case want == "recipient" && (c.kind == "json" || c.kind == "jsonb"):
			return wrong("recipient", fmt.Sprintf("gives recipient as %s, and a job holds it as text", c.kind), "write ->> in place of ->, or #>> in place of #>: they give the text itself, while ::text would keep the quotes of JSON")
		case want == "recipient" && c.category != "S":
			return wrong("recipient", fmt.Sprintf("gives recipient as %s, and a job holds it as text", c.kind), "say how it is written: ...::text AS recipient")
		}
	}
	return nil
}

func readRuleColumns(ctx context.Context, tx pgx.Tx, fields []pgconn.FieldDescription) ([]ruleColumn, error) {
	columns := make([]ruleColumn, len(fields))
	for i, f := range fields {
		c := ruleColumn{name: f.Name}
		err := tx.QueryRow(ctx, `SELECT pg_catalog.format_type(oid, NULL), typcategory::text, typcategory = 'A' FROM pg_catalog.pg_type WHERE oid = $1`,
			f.DataTypeOID).Scan(&c.kind, &c.category, &c.array)
		if err != nil {
			return nil, failed("look up the type of a column of a recipient rule", err)
		}
		if f.DataTypeOID == pgtype.UnknownOID {
			c.category = "S" // a literal without a type is read as text
		}
		columns[i] = c
	}
	return columns, nil
}

// missingColumn says what the rule gives instead.
func missingColumn(columns []ruleColumn, want, rule string) error {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	rest := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "seq" || n == "recipient" })
	what := fmt.Sprintf("gives no column %s, but %s", want, strings.Join(names, ", "))
	fix := map[string]string{"seq": "select b.seq from the relation batch", "recipient": "name it: ... AS recipient"}[want]
	near := problem.Nearest(want, rest)
	if near != "" {
		fix = fmt.Sprintf("did you mean %s? %s", want, strings.ToUpper(fix[:1])+fix[1:])
	}
	return &RuleError{Code: RuleBadColumns, What: what, Fix: fix, Place: wordPlace(rule, near)}
}

// quotedJSON is a value of JSON that is cast to text to become the recipient. In place of a cast, ->> and #>>
// give the text itself.
var quotedJSON = regexp.MustCompile(`(?i)(?:->|#>)\s*(?:'[^']*'|[\w$.]+)\s*(?:\)\s*::\s*(?:text|varchar)|\s+AS\s+(?:text|varchar)\s*\))\s+(?:AS\s+)?"?recipient\b`)

// quotedRecipient warns of recipients that keep the quotes of JSON, as far as the text of a rule shows it.
func quotedRecipient(rule string) []Finding {
	at := quotedJSON.FindStringIndex(rule)
	if at == nil {
		return nil
	}
	return []Finding{{
		Code: RuleQuotes, Severity: problem.Warning, Place: utf8.RuneCountInString(rule[:at[0]]) + 1,
		What: "casts a value of JSON to text, which keeps its quotes: the recipient is \"alex\" and not alex",
		Fix:  "write ->> in place of ->, or #>> in place of #>, and leave out the cast",
	}}
}

// wordPlace is where a rule has a word, counted in characters from 1, when it has it exactly once.
func wordPlace(rule, word string) int {
	found := 0
	for _, w := range words(rule) {
		if word != "" && w.name == word {
			if found > 0 {
				return 0
			}
			found = w.place
		}
	}
	return found
}
