// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Status is how far a database is from what the options of a migration want. It is read, and never
// assumed: Plan says in words what is between the two.
type Status struct {
	Schema, Owner, App string // the roles, with the connecting role filled in
	Server             Server
	Exists             bool    // the schema and its table of migrations
	Closed             bool    // there is such a schema, and the connecting role may not look into it
	TooOld             error   // an *OldBinaryError when the database has outgrown this binary
	Refused            []error // what neither a migration nor a start goes on with
	Migrations         []MigrationState
	// JobsVersion is what the jobs schema has of River, JobsNeeded what this binary was built with. Both
	// are 0 when the options name no such schema.
	JobsVersion, JobsNeeded int
	Names                   []NameState
	Head                    int64 // the highest number of the log
	Partitions              int
	Ahead                   int   // whole partitions above the one of the next number
	UpperBound              int64 // the first number without a partition
	Installation            Installation
	Notify                  bool          // appending transactions send NOTIFY
	Retention               time.Duration // how long events are kept at least
	AbsentRoles             []string      // of the options
	AbsentSchemas           []string
	Missing                 []Need // what grants the rights that the roles lack

	want     MigrateOptions
	counted  bool // there is a counter, so Head and what stands beside it were read
	advice   string
	toMake   int    // partitions
	joinable bool   // the connecting role may act as the owner
	foreign  []bool // of Missing: not the engine's own to grant
	// makesJobs says that River's tables are to be made, by the owner
	makesJobs bool
}

// MigrationState is one migration that this binary carries or the database has.
type MigrationState struct {
	Version   int64
	File      string    // empty when only the database knows it
	AppliedAt time.Time // zero when it was not applied
}

// NameState is one consumer that is declared, known to the database, or both.
type NameState struct {
	Name     string
	Declared bool // in the options
	Known    bool // a cursor may have this name
	Cursor   bool // there is one
	LastSeq  int64
}

// Installation is the row that says who this installation is.
type Installation struct {
	Exists      bool
	Gone        bool // its table is there and empty
	Environment string
	Known       bool // the identity of its server is stored
	Readable    bool // the connecting role may read the identity of the server
	Same        bool // the stored identity is that of this server, or one of them is not known
}

// Current reports whether Migrate would find nothing to do, as far as can be seen.
func (s Status) Current() bool {
	return !slices.ContainsFunc(s.Plan(), func(c Change) bool { return c.Migrates })
}

// Emptied is what stands in for the identity of the installation when its row is gone, else nil. A migration
// makes a new one, so it does not refuse.
func (s Status) Emptied() *MissingRowError {
	if !s.Installation.Gone || len(s.Pending()) > 0 {
		return nil
	}
	gone := missingInstance(s.Schema)
	return &gone
}

// Pending are the files of the migrations that the database lacks, in order.
func (s Status) Pending() []string {
	var files []string
	for _, m := range s.Migrations {
		if m.AppliedAt.IsZero() {
			files = append(files, m.File)
		}
	}
	return files
}

// MigrationStatus reads how far the database is, and changes nothing. The options are those of Migrate.
func MigrationStatus(ctx context.Context, o MigrateOptions) (Status, error) {
	m, err := newMigrator(ctx, o)
	if err != nil {
		return Status{}, err
	}
	defer m.close()
	return readStatus(ctx, m.conn, m.o, m.all)
}

// readStatus looks at everything that a migration would change. The connection may be that of the app.
func readStatus(ctx context.Context, conn Querier, o MigrateOptions, all []migration) (Status, error) {
	s := Status{Schema: o.Schema, want: o}
	for _, part := range []func(context.Context, Querier) error{
		s.readRoles, s.migrationReader(all), s.readJobs, s.readRights, s.readNames, s.readCounter, s.readInstance,
	} {
		if err := part(ctx, conn); err != nil {
			return s, fmt.Errorf("read the state of schema %q: %w", o.Schema, Explain(err))
		}
	}
	return s, nil
}

// readRoles finds out who is who, and what of the roles and schemas is there at all.
func (s *Status) readRoles(ctx context.Context, conn Querier) (err error) {
	if s.Server, err = readServer(ctx, conn); err != nil {
		return err
	}
	if err := s.Server.check(); err != nil {
		s.Refused = append(s.Refused, err)
	}
	s.Owner, s.App = cmp.Or(s.want.Owner, s.Server.Role), cmp.Or(s.want.App, s.Server.Role)
	if s.AbsentRoles, err = absentRoles(ctx, conn, rolesOf(s.Owner, s.App, s.want.Producers)); err != nil {
		return err
	}
	if !slices.Contains(s.AbsentRoles, s.Owner) {
		if s.joinable, err = mayBecome(ctx, conn, s.Server.Version, s.Owner); err != nil {
			return err
		}
	}
	schemas := []string{s.Schema}
	if s.want.JobsMigrate && s.want.JobsSchema != "" {
		schemas = append(schemas, s.want.JobsSchema)
	}
	err = conn.QueryRow(ctx, `SELECT NOT coalesce(pg_catalog.has_schema_privilege((SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1), 'USAGE'), true)`, s.Schema).Scan(&s.Closed)
	if err != nil {
		return failed("look for the schema "+s.Schema, err)
	}
	err = conn.QueryRow(ctx, `SELECT coalesce(array_agg(n ORDER BY i), '{}') FROM unnest($1::text[]) WITH ORDINALITY x(n, i)
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = n)`, schemas).Scan(&s.AbsentSchemas)
	return failed("look for the schemas", err)
}

func (s *Status) migrationReader(all []migration) func(context.Context, Querier) error {
	return func(ctx context.Context, conn Querier) error {
		applied, err := readApplied(ctx, conn, s.Schema)
		if sqlState(err) == codeInsufficientRight {
			s.Exists = true // what was applied, this role may not see; that it may not is told with its rights
			return nil
		}
		if err != nil {
			return err
		}
		s.Exists, s.TooOld = applied.exists, applied.tooOld(s.Schema, all)
		for _, file := range all {
			s.Migrations = append(s.Migrations, MigrationState{file.version, file.file, applied.at[file.version]})
		}
		for version, at := range applied.at {
			if !slices.ContainsFunc(all, func(m migration) bool { return m.version == version }) {
				s.Migrations = append(s.Migrations, MigrationState{Version: version, AppliedAt: at})
			}
		}
		slices.SortFunc(s.Migrations, func(a, b MigrationState) int { return cmp.Compare(a.Version, b.Version) })
		return nil
	}
}

func (s *Status) readJobs(ctx context.Context, conn Querier) error {
	if s.want.JobsSchema == "" {
		return nil
	}
	needed, err := jobsNeeded()
	if err != nil {
		return err
	}
	state, err := readJobsState(ctx, conn, s.want.JobsSchema)
	if sqlState(err) == codeInsufficientRight {
		s.JobsVersion, s.JobsNeeded = needed, needed // not seen: that this role may not look is told with its rights
		return nil
	}
	s.JobsVersion, s.JobsNeeded, s.advice = state.version, needed, state.advice(s.want.JobsSchema)
	s.makesJobs = s.want.JobsMigrate && !state.table
	return err
}

// readRights lists what the roles lack. A role that does not exist lacks everything, so it is named alone.
func (s *Status) readRights(ctx context.Context, conn Querier) error {
	own := rights(s.Schema, s.App, s.want.Producers)
	var maker, jobs []right
	if s.makesJobs && !slices.Contains(s.AbsentSchemas, s.want.JobsSchema) {
		maker = []right{makerRight(s.want.JobsSchema, s.Owner)}
	}
	if s.want.JobsSchema != "" && (s.want.JobsMigrate || s.JobsVersion >= lineColumn) {
		jobs = jobsRights(s.want.JobsSchema, s.App)
	}
	for _, group := range []struct {
		rights  []right
		owner   string
		stops   bool
		foreign bool
	}{{maker, "", true, true}, {own, s.Owner, true, false}, {jobs, s.Owner, true, !s.want.JobsMigrate}, {identityRights(s.App), "", !s.want.Unguarded, true}} {
		there := slices.DeleteFunc(group.rights, func(r right) bool { return slices.Contains(s.AbsentRoles, r.role) })
		lacking, err := missing(ctx, conn, there, group.owner)
		if err != nil {
			return err
		}
		for _, r := range lacking {
			s.Missing = append(s.Missing, r.need(group.stops))
			s.foreign = append(s.foreign, group.foreign)
		}
	}
	return nil
}

// exists reports whether the connecting role can read a table of the schema: it may be about to be made, or
// be closed to this role, and then there is nothing to report from it.
func (s *Status) exists(ctx context.Context, conn Querier, table string) (bool, error) {
	var readable *bool
	err := conn.QueryRow(ctx, `SELECT pg_catalog.has_table_privilege(pg_catalog.to_regclass($1), 'SELECT')`, quote(s.Schema)+"."+table).Scan(&readable)
	if sqlState(err) == codeInsufficientRight {
		return false, nil
	}
	return readable != nil && *readable, failed("look for the table "+table, err)
}

func (s *Status) readNames(ctx context.Context, conn Querier) error {
	known, err := readNames(ctx, conn, s.Schema)
	if err != nil {
		return err
	}
	cursors := map[string]int64{}
	there, err := s.exists(ctx, conn, "event_consumer_cursors")
	if err != nil {
		return err
	}
	if there {
		if cursors, err = lastSeqs(ctx, conn, s.Schema); err != nil {
			return err
		}
	}
	all := sortedUnion(known, s.want.ConsumerNames)
	for name := range cursors {
		all = append(all, name)
	}
	for _, name := range sortedUnion(all, nil) {
		last, has := cursors[name]
		s.Names = append(s.Names, NameState{
			Name: name, Declared: slices.Contains(s.want.ConsumerNames, name),
			Known: slices.Contains(known, name), Cursor: has, LastSeq: last,
		})
	}
	return nil
}

// lastSeqs are the cursors that there are. It needs less than readCursors: the audit may not be there yet.
func lastSeqs(ctx context.Context, conn Querier, schema string) (map[string]int64, error) {
	rows, err := conn.Query(ctx, `SELECT name, last_seq FROM `+quote(schema)+`.event_consumer_cursors`)
	if err != nil {
		return nil, failed("read the cursors", err)
	}
	cursors := map[string]int64{}
	var name string
	var last int64
	_, err = pgx.ForEachRow(rows, []any{&name, &last}, func() error {
		cursors[name] = last
		return nil
	})
	return cursors, failed("read the cursors", err)
}

// newRetention is that of a database to which nobody gave another.
const newRetention = 720 * time.Hour

// readCounter reads the counter and the room of the log. Without them, those of a new log are the state.
func (s *Status) readCounter(ctx context.Context, conn Querier) error {
	s.Notify, s.Retention, s.toMake = true, newRetention, partitionsToMake(1, 1, 0, s.want.PartitionSize, s.want.PartitionsAhead)
	there, err := s.exists(ctx, conn, "event_seq")
	if err != nil || !there {
		return err
	}
	if err := checkCounterRow(ctx, conn, s.Schema); err != nil {
		if absent, ok := errors.AsType[*MissingRowError](err); ok {
			s.Refused, s.toMake = append(s.Refused, absent), 0
			return nil
		}
		return err
	}
	// an older migration does not know the retention
	var keep *float64
	err = conn.QueryRow(ctx, `SELECT seq, upper_bound, notify, extract(epoch FROM (to_jsonb(c) ->> 'retention')::interval)::float8 FROM `+quote(s.Schema)+`.event_seq c`).
		Scan(&s.Head, &s.UpperBound, &s.Notify, &keep)
	if err != nil {
		return failed("read the counter of the event log", err)
	}
	if keep != nil {
		s.Retention = time.Duration(*keep * float64(time.Second))
	}
	s.counted = true
	if there, err = s.exists(ctx, conn, "event_log"); err != nil || !there {
		return err
	}
	if err := checkCounter(ctx, conn, s.Schema); err != nil {
		behind, ok := errors.AsType[*CounterBehindError](err)
		if !ok {
			return err
		}
		s.Refused = append(s.Refused, behind)
	}
	return s.readPartitions(ctx, conn)
}

// readPartitions counts without the function of the schema, which may not be there yet.
func (s *Status) readPartitions(ctx context.Context, conn Querier) error {
	var end int64
	err := conn.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE b[1]::bigint > $2), coalesce(max(b[2]::bigint), 1)
FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
CROSS JOIN regexp_match(pg_catalog.pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?(-?\d+)''?\) TO \(''?(-?\d+)''?\)') b
WHERE i.inhparent = $1::pg_catalog.regclass AND b IS NOT NULL`, quote(s.Schema)+".event_log", s.Head+1).
		Scan(&s.Partitions, &s.Ahead, &end)
	s.toMake = partitionsToMake(s.Head+1, end, s.Ahead, s.want.PartitionSize, s.want.PartitionsAhead)
	return failed("look at the partitions of the event log", err)
}

// partitionsToMake is how many make_partitions would make: end is the first number without one, above how
// many whole ones lie above that of next.
func partitionsToMake(next, end int64, above int, size int64, ahead int) int {
	made := 0
	if next > end {
		end += (next - end) / size * size
	}
	for end <= next || above < ahead {
		if end > next {
			above++
		}
		end += size
		made++
	}
	return made
}

func (s *Status) readInstance(ctx context.Context, conn Querier) error {
	there, err := s.exists(ctx, conn, "instance")
	if err == nil && there {
		s.Installation, err = readInstallation(ctx, conn, s.Schema)
	}
	return err
}
