// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// MigrateOptions says what the database is to look like.
type MigrateOptions struct {
	// AdminURL connects as a role that may become the owner. It must lead to the server itself: the lock
	// and SET ROLE belong to a session, which a pooler in transaction mode would share out.
	AdminURL string
	// Schema holds the engine's own tables.
	Schema string
	// Owner owns the schema and everything in it; App serves. Empty is the connecting role. They may be
	// the same role.
	Owner, App string
	// Producers may execute the append functions and nothing else.
	Producers []string
	// Bootstrap creates the roles that are missing (with LOGIN, without a password) and grants what only
	// an administrator may grant.
	Bootstrap bool
	// ConsumerNames are the declared consumers. Names are only ever added to those the database knows.
	ConsumerNames []string
	// NewConsumers says that names which the database does not know are new consumers, and none is an old one
	// under another name. Without it, they are left out while a cursor has no declared consumer: see Doubt.
	NewConsumers bool
	// PartitionSize is how many events one partition of the log holds; 0 is 1,000,000.
	PartitionSize int64
	// PartitionsAhead is how many whole partitions are kept above the one being filled; 0 is 4.
	PartitionsAhead int
	// Notify says whether an appending transaction sends NOTIFY; without it, consumers wake by polling only.
	// Nil leaves it as the database has it: on, unless somebody turned it off there.
	Notify *bool
	// Retention is how long events are kept at least: the engine cannot drop younger ones, whatever it is told
	// later. 0 leaves it as the database has it: 720 hours, unless somebody changed it there.
	Retention time.Duration
	// Environment is written to an installation that has none. Where the database has another, nothing is changed
	// unless NewEnvironment says that this is meant, which is recorded in the audit.
	Environment    string
	NewEnvironment bool
	// Unguarded says that the engine runs with its restore guard off, and so without the right to read which server
	// this is.
	Unguarded bool
	// JobsSchema is where River's tables are; JobsMigrate allows to create and migrate them. Empty: they
	// are neither migrated nor looked at.
	JobsSchema  string
	JobsMigrate bool
	// StatementTimeout and LockTimeout bound each statement that only looks, and its wait for a lock; 0 is no limit.
	// Migrate itself waits as long as its caller lets it.
	StatementTimeout, LockTimeout time.Duration
	// Log gets one line per thing that is done. Nil: nowhere.
	Log func(line string)
}

// The defaults of MigrateOptions.
const (
	DefaultPartitionSize   = 1_000_000
	DefaultPartitionsAhead = 4
)

// Report is what Migrate did. A second run over the same options does nothing.
type Report struct {
	Owner, App   string        // the roles, with the connecting role filled in
	Roles        []string      // created
	Schemas      []string      // created
	Migrations   []string      // applied: 0002_event_log.sql
	Jobs         []int         // versions of River that were applied to JobsSchema
	Partitions   int           // made
	Names        []string      // of consumers, new to the database
	Grants       []string      // statements that were run
	Instance     bool          // the installation got its identity
	NotifyTurned string        // "on" or "off" when it changed
	RetentionSet time.Duration // when it changed
	Environment  string        // when it changed
	// Missing is what this role may not do and an administrator has to.
	Missing []Need
	// Doubt is why new names were left out, or nil: no engine starts with them before somebody decides.
	Doubt *Doubt
	// Notes are facts that a person should know and that stop nothing.
	Notes []string
}

// Changed reports whether anything was done.
func (r Report) Changed() bool {
	return len(r.Roles)+len(r.Schemas)+len(r.Migrations)+len(r.Jobs)+r.Partitions+len(r.Names)+len(r.Grants) > 0 ||
		r.Instance || r.NotifyTurned != "" || r.RetentionSet != 0 || r.Environment != ""
}

// Stopped is what is missing and keeps the engine from starting.
func (r Report) Stopped() []Need { return stopping(r.Missing) }

// Migrate brings the database to what this binary needs and the options say. It is safe at any time, also
// while the engine and producers run, and when several processes start it at once: the others wait, and
// then find nothing to do. What was done before an error stays done, and the next run goes on from there.
func Migrate(ctx context.Context, o MigrateOptions) (Report, error) {
	unhurried := o
	unhurried.StatementTimeout, unhurried.LockTimeout = 0, 0
	m, err := newMigrator(ctx, unhurried)
	if err != nil {
		return Report{}, err
	}
	defer m.close()
	if err := m.run(ctx); err != nil {
		return m.report, fmt.Errorf("migrate schema %q: %w", o.Schema, Explain(err))
	}
	return m.report, nil
}

// migrator is one run of Migrate, on one connection that holds the lock.
type migrator struct {
	o      MigrateOptions
	all    []migration
	conn   *pgx.Conn
	report Report
}

func newMigrator(ctx context.Context, o MigrateOptions) (*migrator, error) {
	if err := checkNames(o); err != nil {
		return nil, err
	}
	if o.PartitionSize == 0 {
		o.PartitionSize = DefaultPartitionSize
	}
	if o.PartitionsAhead == 0 {
		o.PartitionsAhead = DefaultPartitionsAhead
	}
	all, err := render(o.Schema)
	if err != nil {
		return nil, err
	}
	conn, err := connectAdmin(ctx, o.AdminURL, o.StatementTimeout, o.LockTimeout)
	if err != nil {
		return nil, err
	}
	m := &migrator{o: o, all: all, conn: conn}
	if err := m.resolveRoles(ctx); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// connectAdmin opens a connection whose statements, and their waits for locks, have the given limits, whatever
// those of the role are. 0 waits as long as the caller's context lets them. A server that does not even say that a
// limit was reached is given up soon after it.
func connectAdmin(ctx context.Context, url string, statement, lock time.Duration) (*pgx.Conn, error) {
	config, err := adminConfig(url)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["statement_timeout"], config.RuntimeParams["lock_timeout"] = milliseconds(statement), milliseconds(lock)
	if statement > 0 {
		usePatience(config, statement+replyMargin)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, connecting(err)
	}
	return conn, nil
}

func adminConfig(url string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, unreadableURL(err)
	}
	maps.Copy(config.RuntimeParams, map[string]string{
		"application_name": "bothy-migrate", "statement_timeout": "0", "lock_timeout": "0",
		"idle_in_transaction_session_timeout": "0", "client_min_messages": "warning",
		"default_transaction_read_only": "off", "default_transaction_isolation": "read committed",
	})
	return config, nil
}

// close ends the session, and with it the lock and the role.
func (m *migrator) close() {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	_ = m.conn.Close(ctx) // an error here means that the session is gone already
}

func (m *migrator) run(ctx context.Context) error {
	if err := m.checkServer(ctx); err != nil {
		return err
	}
	if _, err := m.conn.Exec(ctx, `SELECT pg_catalog.pg_advisory_lock($1)`, lockKey(m.o.Schema)); err != nil {
		return failed("wait for another migration to end", err)
	}
	for _, step := range []func(context.Context) error{
		m.makeRoles, m.makeSchema, m.refuseOldBinary, m.applyOwn, m.refuseEmptyCounter, m.applyJobs,
		m.makeInstance, m.setNotify, m.setRetention, m.makePartitions, m.settlePartitions, m.extendNames, m.grant, m.reportCounter,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// lockKey is the same for every process that migrates a schema. Advisory locks are per database.
func lockKey(schema string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("bothy migrate " + schema)) // never fails
	return int64(h.Sum64())                           //nolint:gosec // any 64 bits will do
}

func (m *migrator) logf(format string, args ...any) {
	if m.o.Log != nil {
		m.o.Log(fmt.Sprintf(format, args...))
	}
}

// checkServer refuses a server on which nothing can be made.
func (m *migrator) checkServer(ctx context.Context) error {
	server, err := readServer(ctx, m.conn)
	if err != nil {
		return err
	}
	return server.check()
}

// refuseOldBinary stops an old engine from working on a database that has outgrown it.
func (m *migrator) refuseOldBinary(ctx context.Context) error {
	applied, err := readApplied(ctx, m.conn, m.o.Schema)
	if err != nil {
		return err
	}
	return applied.tooOld(m.o.Schema, m.all)
}

// reportCounter tells of a counter that is behind its log: what else is to be done was done, and no start would
// go on from here.
func (m *migrator) reportCounter(ctx context.Context) error {
	err := checkCounter(ctx, m.conn, m.o.Schema)
	if behind, ok := errors.AsType[*CounterBehindError](err); ok {
		m.report.Missing = append(m.report.Missing, Need{Do: behind.Error(), Stops: true})
		return nil
	}
	return err
}

func (m *migrator) refuseEmptyCounter(ctx context.Context) error {
	return checkCounterRow(ctx, m.conn, m.o.Schema)
}

// asOwner runs one transaction as the owner, so that what it makes belongs to it.
func (m *migrator) asOwner(ctx context.Context, doing string, run func(pgx.Tx) error) error {
	return retried(ctx, func() error {
		err := pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
			if err := m.actAsOwner(ctx, tx); err != nil {
				return err
			}
			return run(tx)
		})
		return failed(doing, err)
	})
}

// actAsOwner changes over to the owner until the transaction ends.
func (m *migrator) actAsOwner(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SET LOCAL ROLE `+quote(m.report.Owner))
	return err
}

// retries is how often a statement that met a busy table or another migration is tried again.
const retries = 10

// retried runs a change again when a lock was not free in time or another session changed the same row of
// the catalog. A lock is never waited for long: whoever waits for a strong lock stops all that come after.
func retried(ctx context.Context, run func() error) error {
	pause := 50 * time.Millisecond
	for try := 1; ; try++ {
		err := run()
		if err == nil || try == retries || !passes(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
			pause = min(2*pause, 2*time.Second)
		}
	}
}

func passes(err error) bool {
	switch sqlState(err) {
	case codeDeadlock, codeLockTimeout:
		return true
	case codeInternal:
		return strings.Contains(err.Error(), "tuple concurrently")
	default:
		return false
	}
}

func (m *migrator) makePartitions(ctx context.Context) error {
	return m.asOwner(ctx, "make partitions of the event log", func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `SELECT `+quote(m.o.Schema)+`.make_partitions($1, $2)`, m.o.PartitionSize, m.o.PartitionsAhead).Scan(&m.report.Partitions)
		if m.report.Partitions > 0 {
			m.logf("made %d partitions of the event log", m.report.Partitions)
		}
		return err
	})
}

// settlePartitions makes appends sure of the new partitions, where no old transaction stands in the way: each run
// does one step, in a transaction of its own, and the engine does what is left while it runs.
func (m *migrator) settlePartitions(ctx context.Context) error {
	const steps = 3
	for range steps {
		err := m.asOwner(ctx, "settle the partitions of the event log", func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT `+quote(m.o.Schema)+`.make_partitions($1, $2)`, m.o.PartitionSize, m.o.PartitionsAhead)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// MakePartitions makes the partitions that are missing ahead of the head, and answers how many it made. It
// needs no more than the rights of the app role and may run in several processes at once.
func MakePartitions(ctx context.Context, conn Querier, schema string, size int64, ahead int) (int, error) {
	var made int
	err := conn.QueryRow(ctx, `SELECT `+quote(schema)+`.make_partitions($1, $2)`, size, ahead).Scan(&made)
	return made, failed("make partitions of the event log", err)
}

// Querier is what a check needs of a connection, a pool or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// sortedUnion is every text of both lists once, in order.
func sortedUnion(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
