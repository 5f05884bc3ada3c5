// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/migrations"
)

// bodyQuote is what the bodies of the functions in migrations/ are quoted with. A name that held it would
// end a body early.
const bodyQuote = "$bothy$"

// migration is one file of migrations/, rendered for a schema.
type migration struct {
	version int64
	name    string // event_log
	file    string // 0002_event_log.sql
	text    string
}

var migrationFile = regexp.MustCompile(`^(\d{4})_([a-z0-9_]+)\.sql$`)

// render gives every migration for a schema, in order.
func render(schema string) ([]migration, error) {
	entries, err := fs.ReadDir(migrations.Files, ".")
	if err != nil {
		return nil, fmt.Errorf("list the migrations: %w", err)
	}
	quoted := quote(schema)
	// One pass: what a name contains is never taken for a placeholder.
	fill := strings.NewReplacer("{{schema}}", quoted, "{{schema_literal}}", literal(quoted))
	all := make([]migration, 0, len(entries))
	for _, entry := range entries {
		parts := migrationFile.FindStringSubmatch(entry.Name())
		if parts == nil {
			return nil, fmt.Errorf("migration %s: a name is four digits, an underscore, lower case words and .sql", entry.Name())
		}
		version, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", entry.Name(), err)
		}
		text, err := fs.ReadFile(migrations.Files, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", entry.Name(), err)
		}
		all = append(all, migration{version, parts[2], entry.Name(), fill.Replace(string(text))})
	}
	return all, nil
}

// latest is the number of the newest migration that this binary carries.
func latest(all []migration) int64 {
	var newest int64
	for _, m := range all {
		newest = max(newest, m.version)
	}
	return newest
}

// quote is a name as an SQL identifier.
func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// literal is a text as an SQL literal, for statements that take no arguments. It relies on
// standard_conforming_strings, which every supported server has on.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// literals is a text[] as an SQL expression.
func literals(texts []string) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = literal(t)
	}
	return "ARRAY[" + strings.Join(quoted, ", ") + "]::text[]"
}

// checkName refuses what cannot be the name of a schema or role. PostgreSQL would cut a longer one short
// without a word, and then look for another.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the %s has no name", what)
	case len(name) > 63:
		return fmt.Errorf("the %s %q has %d bytes: PostgreSQL allows 63", what, name, len(name))
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
		return fmt.Errorf("the %s %q holds a control character", what, name)
	case strings.Contains(name, bodyQuote):
		return fmt.Errorf("the %s %q holds %s, which quotes the functions of the schema", what, name, bodyQuote)
	default:
		return nil
	}
}

// jobsSchemaName is the pattern that River holds a schema to.
var jobsSchemaName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func checkNames(o MigrateOptions) error {
	errs := []error{checkName("schema", o.Schema)}
	if o.Owner != "" {
		errs = append(errs, checkName("role", o.Owner))
	}
	if o.App != "" {
		errs = append(errs, checkName("role", o.App))
	}
	for _, producer := range o.Producers {
		errs = append(errs, checkName("role", producer))
	}
	if o.JobsSchema != "" && (len(o.JobsSchema) > 63 || !jobsSchemaName.MatchString(o.JobsSchema)) {
		errs = append(errs, fmt.Errorf("the schema %q of the jobs cannot be used: River allows letters, digits and underscores, a digit not first", o.JobsSchema))
	}
	for _, name := range o.ConsumerNames {
		if name == "" || strings.ContainsRune(name, 0) {
			errs = append(errs, fmt.Errorf("%q cannot be the name of a consumer", name))
		}
	}
	return errors.Join(errs...)
}
