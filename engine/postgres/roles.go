// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// resolveRoles fills in the connecting role where the options name none.
func (m *migrator) resolveRoles(ctx context.Context) error {
	var current string
	if err := m.conn.QueryRow(ctx, `SELECT current_user`).Scan(&current); err != nil {
		return failed("ask for the connecting role", err)
	}
	m.report.Owner, m.report.App = cmp.Or(m.o.Owner, current), cmp.Or(m.o.App, current)
	return nil
}

// rolesOf are all roles once, in the order owner, app, producers.
func rolesOf(owner, app string, producers []string) []string {
	var all []string
	for _, role := range append([]string{owner, app}, producers...) {
		if !slices.Contains(all, role) {
			all = append(all, role)
		}
	}
	return all
}

// makeRoles creates the roles that are missing, or says what to do, and makes sure that the connecting
// role may become the owner.
func (m *migrator) makeRoles(ctx context.Context) error {
	missing, err := absentRoles(ctx, m.conn, rolesOf(m.report.Owner, m.report.App, m.o.Producers))
	if err != nil {
		return err
	}
	if len(missing) > 0 && !m.o.Bootstrap {
		return fmt.Errorf("the server has no role %s: run `engine migrate up --bootstrap` as a role that may create roles, or give the output of `engine migrate sql` to whoever may", quotedList(missing))
	}
	for _, role := range missing {
		_, err := m.conn.Exec(ctx, roleSQL(role))
		switch sqlState(err) {
		case "":
			if err != nil {
				return failed("create the role "+role, err)
			}
			m.report.Roles = append(m.report.Roles, role)
			m.logf("created the role %s", role)
		case codeDuplicateObject, codeUniqueViolation:
			// another database of this server is being set up at the same moment
		default:
			return failed("create the role "+role, err)
		}
	}
	return m.joinOwner(ctx)
}

// absentRoles are the roles that the server does not have.
func absentRoles(ctx context.Context, conn Querier, roles []string) (absent []string, err error) {
	err = conn.QueryRow(ctx, `SELECT coalesce(array_agg(r ORDER BY i), '{}') FROM unnest($1::text[]) WITH ORDINALITY x(r, i)
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = r)`, roles).Scan(&absent)
	return absent, failed("look for the roles", err)
}

// roleSQL creates a role that can log in as soon as somebody gives it a password or the server's rules
// let it in without.
func roleSQL(role string) string { return `CREATE ROLE ` + quote(role) + ` LOGIN` }

// joinOwner makes the connecting role a member of the owner where it is not and may.
func (m *migrator) joinOwner(ctx context.Context) error {
	server, err := readServer(ctx, m.conn)
	if err != nil {
		return err
	}
	may, err := mayBecome(ctx, m.conn, server.Version, m.report.Owner)
	if err != nil || may {
		return err
	}
	statement := `GRANT ` + quote(m.report.Owner) + ` TO CURRENT_USER`
	if m.o.Bootstrap {
		if err := retried(ctx, func() error { _, err := m.conn.Exec(ctx, statement); return err }); err != nil {
			return failed("become a member of the role "+m.report.Owner, err)
		}
		m.report.Grants = append(m.report.Grants, statement)
		return nil
	}
	return fmt.Errorf("the role %q may not act as the owner %q: connect as %q, or have an administrator run: GRANT %s TO %s",
		server.Role, m.report.Owner, m.report.Owner, quote(m.report.Owner), quote(server.Role))
}

// mayBecome reports whether the connecting role may SET ROLE to another.
func mayBecome(ctx context.Context, conn Querier, version int, role string) (may bool, err error) {
	right := "MEMBER"
	if version >= 16 { // since then a membership can go without the right to SET ROLE
		right = "SET"
	}
	err = conn.QueryRow(ctx, `SELECT pg_catalog.pg_has_role($1, $2)`, role, right).Scan(&may)
	return may, failed("ask for the membership in the role "+role, err)
}

// makeSchema creates the schema and the table of versions.
func (m *migrator) makeSchema(ctx context.Context) error {
	if err := m.makeSchemaNamed(ctx, m.o.Schema); err != nil {
		return err
	}
	var exists bool
	table := quote(m.o.Schema) + ".schema_migration"
	if err := m.conn.QueryRow(ctx, `SELECT pg_catalog.to_regclass($1) IS NOT NULL`, table).Scan(&exists); err != nil {
		return failed("look for the table schema_migration", err)
	}
	if exists {
		return nil
	}
	return m.asOwner(ctx, "create the table schema_migration", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, versionTableSQL(m.o.Schema))
		return err
	})
}

func (m *migrator) makeSchemaNamed(ctx context.Context, schema string) error {
	var exists, may bool
	err := m.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1),
	has_database_privilege(current_database(), 'CREATE')`, schema).Scan(&exists, &may)
	switch {
	case err != nil:
		return failed("look for the schema "+schema, err)
	case exists:
		return nil
	case !may:
		return fmt.Errorf("there is no schema %q and this role may not create one: run `engine migrate up --bootstrap` as an administrator, or have one run: %s", schema, schemaSQL(schema, m.report.Owner))
	}
	if _, err := m.conn.Exec(ctx, schemaSQL(schema, m.report.Owner)); err != nil {
		if code := sqlState(err); code == codeDuplicateSchema || code == codeUniqueViolation {
			return nil // the jobs schema, by the migration of another engine schema
		}
		return failed("create the schema "+schema, err)
	}
	m.report.Schemas = append(m.report.Schemas, schema)
	m.logf("created the schema %s", schema)
	return nil
}

func schemaSQL(schema, owner string) string {
	return `CREATE SCHEMA ` + quote(schema) + ` AUTHORIZATION ` + quote(owner)
}

func quotedList(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, ", ")
}
