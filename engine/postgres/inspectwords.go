// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/problem"
)

// word is a name in the text of a rule.
type word struct {
	name   string // as the catalog has it: in lower case unless it was quoted
	schema string // written before it, or empty
	place  int    // of the first character, that of the schema included, counted from 1
	called bool   // an opening parenthesis follows
}

// sqlToken is a comment, a text, or a name with the names that qualify it. It knows as much of SQL as it takes
// to point at a word: what it misses costs a hint and nothing else.
var sqlToken = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/|[eE]?'(?:[^'\\]|''|\\.)*'|\$[A-Za-z_]*\$.*?\$[A-Za-z_]*\$|` +
	`(?:"(?:[^"]|"")*"|[\p{L}_][\p{L}\p{N}_$]*)(?:\s*\.\s*(?:"(?:[^"]|"")*"|[\p{L}_][\p{L}\p{N}_$]*))*`)

var qualifier = regexp.MustCompile(`"(?:[^"]|"")*"|[^".\s]+`)

// words lists the names of a rule in order.
func words(rule string) []word {
	var found []word
	for _, at := range sqlToken.FindAllStringIndex(rule, -1) {
		text := rule[at[0]:at[1]]
		if strings.HasPrefix(text, "--") || strings.HasPrefix(text, "/*") || strings.HasSuffix(text, "'") || strings.HasPrefix(text, "$") {
			continue
		}
		parts := qualifier.FindAllStringIndex(text, -1)
		last := parts[len(parts)-1]
		w := word{
			name:   unquoted(text[last[0]:last[1]]),
			place:  utf8.RuneCountInString(rule[:at[0]]) + 1,
			called: strings.HasPrefix(strings.TrimLeft(rule[at[1]:], " \t\r\n"), "("),
		}
		if len(parts) > 1 {
			before := parts[len(parts)-2]
			w.schema = unquoted(text[before[0]:before[1]])
		}
		found = append(found, w)
	}
	return found
}

// unquoted is a name as the catalog has it.
func unquoted(name string) string {
	if inner, ok := strings.CutPrefix(name, `"`); ok {
		return strings.ReplaceAll(strings.TrimSuffix(inner, `"`), `""`, `"`)
	}
	return strings.ToLower(name)
}

// volatileCalls warns of functions that may answer differently each time they are asked. A name that also
// belongs to a function that does not is left alone: which of them is meant, only the server knows.
func volatileCalls(ctx context.Context, tx pgx.Tx, rule string) ([]Finding, error) {
	var found []Finding
	seen := map[string]bool{}
	for _, w := range words(rule) {
		full := w.schema + "." + w.name
		if !w.called || seen[full] {
			continue
		}
		seen[full] = true
		var always *bool
		var name *string
		err := tx.QueryRow(ctx, `SELECT bool_and(p.provolatile = 'v'), min(n.nspname || '.' || p.proname) FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE p.proname = $1 AND CASE WHEN $2 = '' THEN pg_catalog.pg_function_is_visible(p.oid) ELSE n.nspname = $2 END`, w.name, w.schema).Scan(&always, &name)
		if err != nil {
			return nil, failed("look up the functions of a recipient rule", err)
		}
		if always == nil || !*always {
			continue
		}
		found = append(found, Finding{
			Code: RuleVolatile, Severity: problem.Warning, Place: w.place,
			What: fmt.Sprintf("calls %s, which is VOLATILE: it may answer differently each time it is asked, so nobody can tell later who should have got a job; if it writes, the round fails", strings.TrimPrefix(*name, "pg_catalog.")),
			Fix:  "call a function that depends on the event alone, or declare it STABLE when it only reads",
		})
	}
	return found, nil
}
