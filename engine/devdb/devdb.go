// SPDX-License-Identifier: Apache-2.0

// Package devdb owns a private PostgreSQL: it finds the programs on this machine (or fetches them), starts
// a server that only this process uses, and leaves nothing behind.
//
//	Find / Fetch -> folder with postgres and initdb
//	Start        -> <base>/bothy-<uid>/<name>/   lock  data  postgres.log  .s.PGSQL.5432
//	             a copy of a base backup, where one is given (From), instead of an empty cluster
//	Stop         -> fast shutdown, then the folder is gone
//
// The folder is owned by a lock that the kernel drops when the process dies, however it dies; the next
// Start ends what a dead owner left running and removes its folder. On Linux the server also gets a signal
// the moment its owner is gone.
//
// It refuses three things. It listens on no TCP port. It serves no folder that it did not make: a cluster
// of someone else would be opened to whoever can reach the socket, with its safety switches off. And it
// knows nothing of schemas, roles or events: what comes out is an empty server and a URL.
package devdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Superuser is the role that every server of this package has. It needs no password: who may use the
// socket is decided by the folder that holds it.
const Superuser = "postgres"

// Options say which server to start. The zero value is a throwaway server with the programs found on this
// machine.
type Options struct {
	// Bin is the folder that holds postgres and initdb. Empty: look for it (see Find).
	Bin string
	// Data is a folder that keeps the database from one Start to the next; it is made when missing.
	// Empty: the database is removed at Stop.
	Data string
	// From is a folder that holds the files of a cluster, such as a base backup: a throwaway server begins with a copy of
	// them instead of an empty database. Recovery says how.
	From     string
	Recovery Recovery
	// Durable makes a commit survive a crash of the machine. Off, commits are several times faster and
	// survive only a crash of the process.
	Durable bool
	// MaxConnections is the server's max_connections; 0 is 100.
	MaxConnections int
	// Settings are further PostgreSQL settings by name. Those that say where the server listens and where
	// its data is are refused.
	Settings map[string]string
	// Fetch allows to download PostgreSQL into the user's cache when the machine has none.
	Fetch bool
	// Log gets one line for what takes long (a download) or is out of the ordinary (something that a
	// killed process left behind was removed). Nil: nowhere.
	Log io.Writer
}

// ErrInUse is what Start returns when another process serves the folder of Options.Data.
var ErrInUse = errors.New("folder is in use")

// Server is a running PostgreSQL. Its methods may be called from several goroutines.
type Server struct {
	bin  Binaries
	home *home
	kept *kept  // nil for a throwaway server
	log  string // path of the server's own log

	// how it was started, so that it can be again
	options Options
	machine machine
	account *account

	turn  sync.Mutex    // Restart and Stop take turns
	mu    sync.Mutex    // guards proc
	proc  *process      // the present one
	ended chan struct{} // closed when it has ended and is not started again

	stop    sync.Once
	stopErr error
}

const (
	startLimit = 2 * time.Minute // a kept cluster may have to recover first
	fastLimit  = 10 * time.Second
	quitLimit  = 6 * time.Second // PostgreSQL itself kills what is left after 5 s
)

// Start starts a server and returns when it accepts connections. The context bounds the start only; the
// server lives until Stop or until this process ends.
//
// The errors say what to do: ErrNotFound when there are no programs, ErrInUse when Data is being served
// already, and otherwise the last lines of the server's own log.
func Start(ctx context.Context, o Options) (*Server, error) {
	return start(ctx, o, thisMachine())
}

func start(ctx context.Context, o Options, m machine) (*Server, error) {
	s := &Server{options: o, machine: m, ended: make(chan struct{})}
	if err := s.start(ctx, o, m); err != nil {
		return nil, errors.Join(fmt.Errorf("start of a private PostgreSQL: %w", err), s.Stop())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, o Options, m machine) error {
	if err := supported(); err != nil {
		return err
	}
	if err := checkOptions(o); err != nil {
		return err
	}
	account, err := runAs()
	if err != nil {
		return err
	}
	s.account = account
	// What a killed process left goes first: it may still serve the folder that is asked for now.
	sweep(m.bases, o.Log)
	if s.home, err = newHome(m.bases, account, o.Data == "" && !o.Durable); err != nil {
		return err
	}
	major := 0 // any
	if o.From != "" {
		if major, err = majorOf(o.From); err != nil {
			return err
		}
	}
	if o.Data != "" {
		if s.kept, err = openKept(o.Data, account); err != nil {
			return err
		}
		if err := os.Symlink(s.kept.dir, s.home.data()); err != nil {
			return fmt.Errorf("note of the folder that is kept: %w", err)
		}
		major = s.kept.major
	}
	if s.bin, err = findOrFetch(ctx, o, m, account, major); err != nil {
		return err
	}
	if err := s.prepare(ctx, account, o); err != nil {
		return err
	}
	p, err := s.launch(o, m, account)
	if err != nil {
		return err
	}
	s.serve(p)
	return s.waitReady(ctx, p)
}

// serve makes p the server's process. When it ends and is the present one still, the server has ended.
func (s *Server) serve(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc = p
	go func() {
		<-p.done
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.proc == p {
			close(s.ended)
		}
	}()
}

// process is the present one, or nil while there is none.
func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// prepare makes the cluster when there is none yet.
func (s *Server) prepare(ctx context.Context, account *account, o Options) error {
	if s.kept != nil {
		s.log = filepath.Join(s.kept.dir, logName)
		return s.kept.prepare(ctx, s.bin, account, o.Durable)
	}
	s.log = filepath.Join(s.home.dir, logName)
	if o.From != "" {
		return copied(ctx, o.From, s.home.data(), o.Recovery, account)
	}
	return initdb(ctx, s.bin, s.home.data(), account, o.Durable)
}

// cluster is the folder that PostgreSQL calls its data directory.
func (s *Server) cluster() string {
	if s.kept == nil {
		return s.home.data()
	}
	return s.kept.cluster()
}

// reserved are the settings that the promises of this package rest on.
var reserved = []string{
	"listen_addresses", "port", "unix_socket_directories", "unix_socket_permissions", "unix_socket_group",
	"data_directory", "config_file", "hba_file", "ident_file", "external_pid_file",
	"logging_collector", "log_destination", "max_connections",
}

func checkOptions(o Options) error {
	if o.MaxConnections < 0 {
		return fmt.Errorf("max connections is %d: give a number above 0, or 0 for 100", o.MaxConnections)
	}
	if o.From != "" && o.Data != "" {
		return fmt.Errorf("a server cannot both keep the folder %s and begin with a copy of %s: give one of them", o.Data, o.From)
	}
	for name := range o.Settings {
		for _, r := range reserved {
			if strings.EqualFold(name, r) {
				return fmt.Errorf("setting %q cannot be given: the private server decides it itself", name)
			}
		}
		if strings.ContainsAny(name, "= \t\n\x00") || name == "" {
			return fmt.Errorf("setting %q is no name of a PostgreSQL setting", name)
		}
	}
	return nil
}

// waitReady returns when a connection succeeds, or with the end of the server's log when it died first.
func (s *Server) waitReady(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit,
		fmt.Errorf("the server did not accept a connection within %s", startLimit))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.URL(Superuser, "postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.done:
			return fmt.Errorf("the server ended at once (%s), its log %s ends with:\n%s", p.state(), s.log, tail(s.log))
		case <-ctx.Done():
			return fmt.Errorf("%w: %w; its log %s ends with:\n%s", context.Cause(ctx), err, s.log, tail(s.log))
		case <-tick.C:
		}
	}
}

// URL is where to connect as a user to a database: a postgres:// URL for pgx, psql and everything else
// that is built on libpq or follows it. It needs no password.
func (s *Server) URL(user, database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(user),
		Host:     "",
		Path:     "/" + database,
		RawQuery: url.Values{"host": {s.home.dir}, "port": {"5432"}}.Encode(),
	}
	return u.String()
}

// Version is the server's version as its programs say it, such as 15.18.
func (s *Server) Version() string { return s.bin.Version }

// Bin is the folder of the programs in use. A fetched PostgreSQL has no psql and no pg_dump there.
func (s *Server) Bin() string { return s.bin.Bin }

// Dir is the server's own folder, with its socket. It is gone after Stop.
func (s *Server) Dir() string { return s.home.dir }

// Done is closed when the server has ended, by Stop or by itself. A Restart is no end unless it fails.
func (s *Server) Done() <-chan struct{} { return s.ended }

// Trouble says how the server ended and what its log says last. Call it after Done and before Stop.
func (s *Server) Trouble() error {
	state := "it was not started again"
	if p := s.process(); p != nil {
		state = p.state()
	}
	return fmt.Errorf("the private PostgreSQL has ended (%s), and its log ends with:\n%s", state, tail(s.log))
}

// Stop ends the server and removes what it made, except a folder that is kept. Clients are disconnected.
// It takes at most about 20 seconds, usually a few hundredths of one; a second call returns what the
// first did.
func (s *Server) Stop() error {
	s.stop.Do(func() { s.stopErr = s.end() })
	return s.stopErr
}

func (s *Server) end() error {
	s.turn.Lock()
	defer s.turn.Unlock()
	var errs []error
	if p := s.process(); p != nil {
		errs = append(errs, p.stop())
	}
	if s.home != nil {
		errs = append(errs, s.home.remove())
	}
	if s.kept != nil {
		errs = append(errs, s.kept.lock.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop of the private PostgreSQL: %w", err)
	}
	return nil
}

// say writes one line for a person who waits.
func say(w io.Writer, format string, args ...any) {
	if w != nil {
		fmt.Fprintf(w, format+"\n", args...)
	}
}
