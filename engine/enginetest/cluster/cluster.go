// SPDX-License-Identifier: Apache-2.0

// Package cluster owns whole servers for tests of what happens to a database from outside: it is backed up, recovered to a
// point, copied, followed by a standby that takes over, dumped and restored.
//
//	Start ---- Backup ----> a folder ----> Recover  replays the archive up to a point: a new timeline
//	  |                            |-----> Standby  follows, until Promote: a new timeline
//	  |                            '-----> Clone    goes on as the server that it was: nothing tells the two apart
//	  |------- Copy --------------------> another database of the same server: a new number
//	  '------- Restore -----------------> into another server: a new system identifier
//
// It needs no programs but postgres and initdb: where pg_dump and psql are there, Restore uses them. Every server is a
// private one of the package devdb, on a socket only, and ends with its test.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/devdb"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// Database is the database that every server of this package has.
const Database = "shop"

// limit bounds what a fixture waits for.
const limit = 2 * time.Minute

// Server is a running server with the database of an installation.
type Server struct {
	*devdb.Server
	*enginetest.DB
	archive string // where its log is archived
}

// Start makes a server that archives its log, with a database that is migrated for the consumers.
func Start(t testing.TB, consumers ...string) *Server {
	t.Helper()
	s := Empty(t)
	s.Migrate(t, consumers...)
	return s
}

// Empty makes a server that archives its log, with a database that is empty.
func Empty(t testing.TB) *Server {
	t.Helper()
	s := start(t, devdb.Options{}, archiveOf(t))
	s.exec(t, `CREATE DATABASE `+Database+` TEMPLATE template0 ENCODING 'UTF8'`)
	return s
}

// Migrate brings the database to what the engine needs.
func (s *Server) Migrate(t testing.TB, consumers ...string) {
	t.Helper()
	_, err := postgres.Migrate(t.Context(), postgres.MigrateOptions{
		AdminURL: s.AdminURL, Schema: enginetest.Schema, Owner: enginetest.OwnerRole, App: enginetest.AppRole,
		Producers: []string{enginetest.ProducerRole}, Bootstrap: true, PartitionsAhead: 1, Environment: "test",
		ConsumerNames: consumers, JobsSchema: enginetest.JobsSchema, JobsMigrate: true,
	})
	if err != nil {
		t.Fatalf("migrate: %v", err)
	}
}

// archiveOf makes a folder for archived logs. The account that root hands servers to must be able to write to it.
func archiveOf(t testing.TB) string {
	t.Helper()
	parent, err := os.MkdirTemp("", "bothy-archive-") //nolint:usetesting // no other account reaches what t.TempDir makes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(parent); err != nil {
			t.Errorf("remove the archive: %v", err)
		}
	})
	dir := filepath.Join(parent, "wal")
	err = errors.Join(os.Chmod(parent, 0o711), os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) //nolint:gosec // the parent has a name that nobody can guess
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func start(t testing.TB, o devdb.Options, archive string) *Server {
	t.Helper()
	settings := map[string]string{
		"archive_mode": "on", "archive_command": "cp %p '" + archive + "/%f'", "wal_keep_size": "256MB",
		// small, so that there is little to archive, and soon there
		"min_wal_size": "32MB", "wal_receiver_status_interval": "1", "wal_retrieve_retry_interval": "100ms",
		"autovacuum": "off",
	}
	maps.Copy(settings, o.Settings)
	o.Settings, o.Fetch, o.Log = settings, true, os.Stderr
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	server, err := devdb.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return &Server{Server: server, archive: archive, DB: databaseOf(server, Database)}
}

func databaseOf(server *devdb.Server, name string) *enginetest.DB {
	return &enginetest.DB{
		Name: name, AdminURL: server.URL(devdb.Superuser, name), OwnerURL: server.URL(enginetest.OwnerRole, name),
		AppURL: server.URL(enginetest.AppRole, name), ProducerURL: server.URL(enginetest.ProducerRole, name),
	}
}

// Copy makes another database of the same server from this one, as CREATE DATABASE does and as a dump that is loaded
// beside does. It ends every session of this one.
func (s *Server) Copy(t testing.TB, name string) *Server {
	t.Helper()
	s.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '`+s.Name+`'`)
	s.exec(t, `CREATE DATABASE `+name+` TEMPLATE `+s.Name)
	return &Server{Server: s.Server, archive: s.archive, DB: databaseOf(s.Server, name)}
}

// Replace drops a database and gives its name to another one of the same server.
func (s *Server) Replace(t testing.TB, by, gone *Server) {
	t.Helper()
	s.exec(t, `DROP DATABASE `+gone.Name+` WITH (FORCE)`)
	s.exec(t, `ALTER DATABASE `+by.Name+` RENAME TO `+gone.Name)
}

// End stops the server, as one does that is gone for good.
func (s *Server) End(t testing.TB) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Fatalf("stop: %v", err)
	}
}

// left are the folders of a cluster whose content a backup leaves out: it is of the running server alone.
var left = []string{"pg_wal", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans"}

// Backup takes a base backup while the server runs, with the log that makes it whole, and answers its folder.
func (s *Server) Backup(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "base")
	data := filepath.Join(s.Dir(), "data")
	conn := s.connect(t, "postgres") // the backup belongs to its session
	if _, err := conn.Exec(t.Context(), `SELECT pg_backup_start('test', fast => true)`); err != nil {
		t.Fatalf("begin the backup: %v", err)
	}
	err := filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a file that went away meanwhile comes out of the log again
		}
		if err != nil {
			return err
		}
		part, err := filepath.Rel(data, path)
		if err != nil || slices.Contains([]string{"postmaster.pid", "postmaster.opts"}, part) {
			return err
		}
		if entry.IsDir() {
			if err := os.MkdirAll(filepath.Join(dir, part), 0o700); err != nil {
				return err
			}
			if slices.Contains(left, part) {
				return fs.SkipDir
			}
			return nil
		}
		return copyFile(path, filepath.Join(dir, part))
	})
	if err != nil {
		t.Fatalf("copy the cluster: %v", err)
	}
	var label string
	if err := conn.QueryRow(t.Context(), `SELECT labelfile FROM pg_backup_stop()`).Scan(&label); err != nil {
		t.Fatalf("end the backup: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "backup_label"), []byte(label), 0o600); err != nil {
		t.Fatal(err)
	}
	s.copyLog(t, filepath.Join(dir, "pg_wal"))
	return dir
}

// copyLog copies what is there of the log.
func (s *Server) copyLog(t testing.TB, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(to, "archive_status"), 0o700); err != nil {
		t.Fatal(err)
	}
	wal := filepath.Join(s.Dir(), "data", "pg_wal")
	entries, err := os.ReadDir(wal)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			if err := copyFile(filepath.Join(wal, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// Point marks this moment by a name, to recover to, and returns when the log up to it is archived.
func (s *Server) Point(t testing.TB, name string) {
	t.Helper()
	s.exec(t, `SELECT pg_create_restore_point('`+name+`')`)
	s.Archive(t)
}

// Archive returns when everything that was written until now is archived.
func (s *Server) Archive(t testing.TB) {
	t.Helper()
	conn := s.connect(t, "postgres")
	var file string
	if err := conn.QueryRow(t.Context(), `SELECT pg_walfile_name(pg_switch_wal())`).Scan(&file); err != nil {
		t.Fatalf("switch the log: %v", err)
	}
	Until(t, "the log is archived", func() bool {
		var last string
		err := conn.QueryRow(t.Context(), `SELECT coalesce((SELECT last_archived_wal FROM pg_stat_archiver), '')`).Scan(&last)
		return err == nil && last >= file
	})
}

// Target is where a recovery ends.
type Target struct {
	Point  string // a name given to Point; empty: the end of the archive
	Paused bool   // it waits there until Promote, instead of becoming writable at once
}

// Recover makes a server from a backup and replays the archive of this one up to a target.
func (s *Server) Recover(t testing.TB, backup string, to Target) *Server {
	t.Helper()
	settings := map[string]string{"restore_command": "cp '" + s.archive + "/%f' %p"}
	if to.Point != "" {
		settings["recovery_target_name"] = to.Point
		settings["recovery_target_action"] = "promote"
		if to.Paused {
			settings["recovery_target_action"] = "pause"
		}
	}
	r := start(t, devdb.Options{From: backup, Recovery: devdb.Recover, Settings: settings}, archiveOf(t))
	if to.Paused {
		Until(t, "the recovery is at its target", func() bool { return r.scan(t, `SELECT pg_get_wal_replay_pause_state() = 'paused'`) })
	} else {
		Until(t, "the recovery has ended", func() bool { return r.scan(t, `SELECT NOT pg_is_in_recovery()`) })
	}
	return r
}

// Standby makes a server from a backup that follows this one.
func (s *Server) Standby(t testing.TB, backup string) *Server {
	t.Helper()
	info := fmt.Sprintf("host=%s port=5432 user=%s application_name=standby", s.Dir(), devdb.Superuser)
	return start(t, devdb.Options{From: backup, Recovery: devdb.Standby, Settings: map[string]string{"primary_conninfo": info}}, archiveOf(t))
}

// Clone makes a server from a backup that goes on as the one that was backed up, as from a snapshot of its disk.
func (s *Server) Clone(t testing.TB, backup string) *Server {
	t.Helper()
	return start(t, devdb.Options{From: backup}, archiveOf(t))
}

// CaughtUp returns when a standby has replayed all that its primary has written until now.
func (s *Server) CaughtUp(t testing.TB, primary *Server) {
	t.Helper()
	var lsn string
	if err := primary.connect(t, "postgres").QueryRow(t.Context(), `SELECT pg_current_wal_flush_lsn()::text`).Scan(&lsn); err != nil {
		t.Fatal(err)
	}
	Until(t, "the standby has caught up", func() bool {
		return s.scan(t, `SELECT coalesce(pg_last_wal_replay_lsn() >= '`+lsn+`'::pg_lsn, false)`)
	})
}

// Promote makes a server writable that is still recovering, and returns at once when it is: nothing waits for its first
// checkpoint.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if !s.scan(t, `SELECT pg_promote(true, 60)`) {
		t.Fatal("the server was not promoted within a minute")
	}
}

func (s *Server) scan(t testing.TB, query string) (holds bool) {
	t.Helper()
	s.with(t, "postgres", func(ctx context.Context, conn *pgx.Conn) error { return conn.QueryRow(ctx, query).Scan(&holds) })
	return holds
}

func (s *Server) exec(t testing.TB, sql string) {
	t.Helper()
	s.with(t, "postgres", func(ctx context.Context, conn *pgx.Conn) error { _, err := conn.Exec(ctx, sql); return err })
}

// with runs something on a connection that is closed again: what waits asks many times.
func (s *Server) with(t testing.TB, database string, run func(context.Context, *pgx.Conn) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(devdb.Superuser, database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := run(ctx, conn); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) connect(t testing.TB, database string) *pgx.Conn {
	t.Helper()
	return enginetest.Connect(t, s.URL(devdb.Superuser, database))
}

// Until waits for a condition, however slow the machine is.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
