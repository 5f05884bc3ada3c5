// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"fmt"
	"strings"
)

// MigrateSQL is everything that Migrate would do, as a script for an administrator and psql. It connects
// to nothing, may be run again, and skips what was done before; afterwards Migrate finds nothing to do.
// Empty roles stand for the role that runs the script.
func MigrateSQL(o MigrateOptions) (string, error) {
	if err := checkNames(o); err != nil {
		return "", err
	}
	if o.PartitionSize == 0 {
		o.PartitionSize = DefaultPartitionSize
	}
	if o.PartitionsAhead == 0 {
		o.PartitionsAhead = DefaultPartitionsAhead
	}
	s := &script{o: o}
	s.roles()
	if err := s.own(); err != nil {
		return "", err
	}
	if o.JobsMigrate && o.JobsSchema != "" {
		if err := s.jobs(); err != nil {
			return "", err
		}
	}
	s.grants()
	return s.text.String(), nil
}

// script collects statements.
type script struct {
	o    MigrateOptions
	text strings.Builder
}

func (s *script) say(format string, args ...any) { fmt.Fprintf(&s.text, format+"\n", args...) }

// do wraps statements that need a condition.
func (s *script) do(body string) { s.say("DO %s BEGIN\n%s\nEND %s;\n", bodyQuote, body, bodyQuote) }

// as switches to a role, or back to the one that runs the script.
func (s *script) as(role string) {
	if role == "" {
		s.say("RESET ROLE;\n")
		return
	}
	s.say("SET ROLE %s;\n", quote(role))
}

func (s *script) roles() {
	s.say(`-- The engine's schema %q, for PostgreSQL 15 or newer. Run as an administrator:
--     psql -v ON_ERROR_STOP=1 -f THIS_FILE DATABASE
-- or statement by statement with any other client. When it ends with a lock timeout, another session used a table
-- that it changes: run it again.
SET client_min_messages = warning;
`, s.o.Schema)
	s.do(fmt.Sprintf("    PERFORM pg_catalog.pg_advisory_lock(%d);", lockKey(s.o.Schema)))
	seen := map[string]bool{"": true}
	for _, role := range append([]string{s.o.Owner, s.o.App}, s.o.Producers...) {
		if !seen[role] {
			seen[role] = true
			s.do(fmt.Sprintf("    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = %s) THEN\n        %s;\n    END IF;", literal(role), roleSQL(role)))
		}
	}
	if s.o.Owner != "" {
		s.do(fmt.Sprintf(`    IF NOT pg_catalog.pg_has_role(%s, CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
        GRANT %s TO CURRENT_USER;
    END IF;`, literal(s.o.Owner), quote(s.o.Owner)))
	}
}

// schema makes a schema that may exist.
func (s *script) schema(name string) {
	statement := "CREATE SCHEMA " + quote(name)
	if s.o.Owner != "" {
		statement = schemaSQL(name, s.o.Owner)
	}
	s.do(fmt.Sprintf("    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s) THEN\n        %s;\n    END IF;", literal(name), statement))
}

// own is the engine's schema with its migrations and what Migrate sets beyond them.
func (s *script) own() error {
	all, err := render(s.o.Schema)
	if err != nil {
		return err
	}
	schema := quote(s.o.Schema)
	s.schema(s.o.Schema)
	s.as(s.o.Owner)
	s.say("%s;\n", strings.Replace(versionTableSQL(s.o.Schema), "CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1))
	for _, m := range all {
		s.step("", fmt.Sprintf("NOT EXISTS (SELECT FROM %s.schema_migration WHERE version = %d)", schema, m.version), m.text)
	}
	instance, err := instanceSQL(s.o)
	if err != nil {
		return err
	}
	s.say("%s;\n", instance)
	if s.o.Environment != "" {
		s.say("%s;\n", environmentSQL(s.o.Schema, "", s.o.Environment))
	}
	if s.o.Notify != nil {
		s.say("%s;\n", notifySQL(s.o.Schema, *s.o.Notify))
	}
	if s.o.Retention > 0 {
		s.say("%s;\n", retentionSQL(s.o.Schema, s.o.Retention))
	}
	s.do(fmt.Sprintf("    PERFORM %s.make_partitions(%d, %d);", schema, s.o.PartitionSize, s.o.PartitionsAhead))
	s.do(scriptNames(s.o.Schema, s.o.ConsumerNames))
	return nil
}

// step is one migration in a statement, and so a transaction, of its own. It is a text inside, since what it
// names may not exist until it runs. Producers queue up behind a wait for a strong lock, so it is short. before can set have, which the condition may ask.
func (s *script) step(before, condition, text string) {
	s.say("DO $bothy_do$ DECLARE have bigint := 0; BEGIN\n    PERFORM set_config('lock_timeout', '%s', true);%s\n    IF %s THEN EXECUTE $bothy_step$\n%s\n$bothy_step$;\n    END IF;\nEND $bothy_do$;\n", migrationPatience, before, condition, strings.TrimSpace(text))
}

// scriptNames adds the declared names to the constraint, like AllowNames.
func scriptNames(schema string, declared []string) string {
	table := quote(schema) + ".event_consumer_cursors"
	return fmt.Sprintf(`    DECLARE
        known  text[];
        wanted text[];
    BEGIN
        SELECT coalesce(array_agg(replace(m[1], '''''', '''')), '{}') INTO known
        FROM pg_catalog.pg_constraint k, regexp_matches(pg_catalog.pg_get_constraintdef(k.oid), '''((?:[^'']|'''')*)''', 'g') m
        WHERE k.conrelid = %[1]s::regclass AND k.conname = '%[2]s';
        IF NOT known @> %[3]s THEN
            SELECT array_agg(DISTINCT n ORDER BY n) INTO wanted FROM (
                SELECT unnest(known || %[3]s) UNION SELECT name FROM %[4]s) names (n);
            EXECUTE 'ALTER TABLE %[5]s DROP CONSTRAINT IF EXISTS %[2]s, ADD CONSTRAINT %[2]s CHECK (name = ANY (ARRAY['
                || (SELECT string_agg(quote_literal(n), ', ') FROM unnest(wanted) n) || ']::text[]))';
        END IF;
    END;`, literal(table), nameCheck, literals(declared), table, strings.ReplaceAll(table, "'", "''"))
}

// jobs is River's part. Its own table of versions grows a column on the way.
func (s *script) jobs() error {
	migrator, err := riverMigrator(nil, s.o.JobsSchema)
	if err != nil {
		return err
	}
	in := quote(s.o.JobsSchema) + "."
	table := in + "river_migration"
	s.as("")
	s.say("-- River's tables")
	s.schema(s.o.JobsSchema)
	if s.o.Owner != "" {
		s.say("%s;\n", makerRight(s.o.JobsSchema, s.o.Owner).sql())
	}
	owner := "quote_ident(current_user)"
	if s.o.Owner != "" {
		owner = literal(quote(s.o.Owner))
	}
	s.do(fmt.Sprintf(`    EXECUTE 'SET ROLE ' || coalesce((SELECT quote_ident(pg_catalog.pg_get_userbyid(relowner))
        FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass(%s)), %s);`, literal(table), owner))
	// River's own table comes with its first version: a text is not looked up before it runs.
	have := fmt.Sprintf(`
    IF pg_catalog.to_regclass(%s) IS NOT NULL THEN
        EXECUTE $bothy_have$SELECT coalesce(max(version), 0) FROM %s r WHERE coalesce(to_jsonb(r) ->> 'line', 'main') = 'main'$bothy_have$ INTO have;
    END IF;`, literal(table), table)
	for _, version := range migrator.AllVersions() {
		record := fmt.Sprintf("INSERT INTO %s (line, version) VALUES ('main', %d);", table, version.Version)
		if version.Version < lineColumn {
			record = fmt.Sprintf("INSERT INTO %s (version) VALUES (%d);", table, version.Version)
		}
		body := strings.TrimRight(strings.ReplaceAll(version.SQLUp, "/* TEMPLATE: schema */", in), " \n")
		if !strings.HasSuffix(body, ";") {
			body += ";"
		}
		s.step(have, fmt.Sprintf("have < %d", version.Version), body+"\n"+record)
	}
	return nil
}

// grantMissing leaves what belongs to others as it is where the right is there already, for instance
// through PUBLIC. Where the object itself is not there, it says so and goes on.
func (s *script) grantMissing(r right) {
	exists := map[string]string{"SCHEMA": "to_regnamespace", "FUNCTION": "to_regprocedure"}[r.kind]
	if exists == "" {
		exists = "to_regclass"
	}
	object := fmt.Sprintf("pg_catalog.%s(%s)", exists, literal(r.object))
	var has []string
	for verb := range strings.SplitSeq(r.verbs, ", ") {
		has = append(has, fmt.Sprintf("pg_catalog.has_%s_privilege(%s, %s, '%s')", strings.ToLower(r.kind), literal(r.role), object, verb))
	}
	s.do(fmt.Sprintf(`    IF %s IS NULL THEN
        RAISE WARNING '%%', %s;
    ELSIF NOT (%s) THEN
        %s;
    END IF;`, object, literal(fmt.Sprintf("there is no %s %s yet: once it is there, run this script again, or: %s", strings.ToLower(r.kind), r.object, r.sql())),
		strings.Join(has, " AND "), r.sql()))
}

func (s *script) grants() {
	s.as("")
	if s.o.App != "" {
		if s.o.JobsSchema != "" {
			for _, r := range jobsRights(s.o.JobsSchema, s.o.App) {
				s.grantMissing(r)
			}
		}
		for _, r := range identityRights(s.o.App) {
			s.grantMissing(r)
		}
	}
	s.as(s.o.Owner)
	for _, r := range rights(s.o.Schema, s.o.App, s.o.Producers) {
		if r.role != "" {
			s.say("%s;", r.sql())
		}
	}
	s.say("")
	s.as("")
	s.say("%s;\n", identitySQL(s.o.Schema))
	s.say("%s;\n", databaseSQL(s.o.Schema))
	s.do(fmt.Sprintf("    PERFORM pg_catalog.pg_advisory_unlock(%d);", lockKey(s.o.Schema)))
}
