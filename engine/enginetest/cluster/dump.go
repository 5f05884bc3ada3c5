// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/devdb"
	"example.com/bothy/engine/enginetest"
)

// Dump writes the database of this server into a new one, with another system identifier: by pg_dump and psql, or,
// where the programs of the server have none, table by table into a database that was migrated.
func (s *Server) Dump(t testing.TB, consumers ...string) *Server {
	t.Helper()
	to := Empty(t)
	dump, errDump := exec.LookPath(filepath.Join(s.Bin(), "pg_dump"))
	psql, errPsql := exec.LookPath(filepath.Join(s.Bin(), "psql"))
	if errDump != nil || errPsql != nil {
		to.Migrate(t, consumers...)
		s.copyTables(t, to)
		return to
	}
	for _, role := range []string{enginetest.OwnerRole, enginetest.AppRole, enginetest.ProducerRole} {
		to.exec(t, `CREATE ROLE `+role+` LOGIN`)
	}
	text := output(t, nil, dump, "-d", s.AdminURL)
	output(t, bytes.NewReader(text), psql, "-d", to.AdminURL, "-q", "-v", "ON_ERROR_STOP=1", "-f", "-")
	return to
}

func output(t testing.TB, input io.Reader, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, messages bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &out, &messages
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(name), err, messages.String())
	}
	return out.Bytes()
}

// copyTables replaces the rows of every table in to by those of this server.
func (s *Server) copyTables(t testing.TB, to *Server) {
	t.Helper()
	s.with(t, Database, func(ctx context.Context, from *pgx.Conn) error {
		target, err := pgx.Connect(ctx, to.URL(devdb.Superuser, Database))
		if err != nil {
			return err
		}
		defer func() { _ = target.Close(ctx) }()
		if _, err := target.Exec(ctx, `SET session_replication_role = replica`); err != nil {
			return err
		}
		// a partition comes with its parent; what was applied is the same on both sides
		rows, err := from.Query(ctx, `SELECT format('%I.%I', n.nspname, c.relname), (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
	FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname IN ($1, $2) AND c.relname NOT IN ('schema_migration', 'river_migration') ORDER BY 1`,
			enginetest.Schema, enginetest.JobsSchema)
		if err != nil {
			return err
		}
		tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
		if err != nil {
			return err
		}
		for _, one := range tables {
			if err := one.copy(ctx, from, target); err != nil {
				return fmt.Errorf("copy %s: %w", one.Name, err)
			}
		}
		_, err = target.Exec(ctx, `SELECT setval('river_job_id_seq', greatest(1, (SELECT max(id) FROM river_job)))`)
		return err
	})
}

// table is one to copy.
type table struct{ Name, Columns string }

func (o table) copy(ctx context.Context, from, to *pgx.Conn) error {
	if !strings.HasSuffix(o.Name, ".audit_events") { // it is empty, and refuses this
		if _, err := to.Exec(ctx, `DELETE FROM `+o.Name); err != nil {
			return err
		}
	}
	var rows bytes.Buffer
	if _, err := from.PgConn().CopyTo(ctx, &rows, fmt.Sprintf(`COPY (SELECT %s FROM %s) TO STDOUT`, o.Columns, o.Name)); err != nil {
		return err
	}
	_, err := to.PgConn().CopyFrom(ctx, &rows, fmt.Sprintf(`COPY %s (%s) FROM STDIN`, o.Name, o.Columns))
	return err
}
