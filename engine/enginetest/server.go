// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"example.com/bothy/engine/devdb"
	"example.com/bothy/engine/postgres"
)

// Main runs the tests of a package, stops the server that they used and reports goroutines that they left
// behind. It does not return:
//
//	func TestMain(m *testing.M) { enginetest.Main(m) }
func Main(m *testing.M) {
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "enginetest:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "enginetest: the tests left goroutines behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// limit bounds what a fixture waits for; a machine that is slower than this has another problem.
const limit = time.Minute

// password lets the roles in where an existing server asks for one.
const password = "bothy-test"

// shared is the one server of a test binary.
var shared server

// server is a PostgreSQL with a template database that was migrated once.
type server struct {
	start    sync.Once
	startErr error

	own      *devdb.Server // nil when a variable names an existing one
	existing *url.URL
	template string

	mu    sync.Mutex // one CREATE DATABASE at a time: a template must not be used twice at once
	admin *pgx.Conn
	count int
}

// ready starts the server and makes the template, once.
func (s *server) ready() error {
	s.start.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		s.startErr = s.prepare(ctx)
	})
	return s.startErr
}

func (s *server) prepare(ctx context.Context) (err error) {
	if given := cmp.Or(os.Getenv("BOTHY_TEST_SERVER_URL"), os.Getenv("BOTHY_DATABASE_URL")); given != "" {
		if s.existing, err = url.Parse(given); err != nil || s.existing.Scheme == "" || s.existing.User == nil {
			return errors.New("BOTHY_TEST_SERVER_URL (or BOTHY_DATABASE_URL) cannot be used for tests: write postgres://USER:PASSWORD@HOST:PORT/DATABASE with a superuser")
		}
	} else {
		s.own, err = devdb.Start(ctx, devdb.Options{
			Fetch: true, MaxConnections: 300, Log: os.Stderr,
			Settings: map[string]string{"max_prepared_transactions": "4"},
		})
		if err != nil {
			return fmt.Errorf("start a server for the tests: %w", err)
		}
	}
	if s.admin, err = pgx.Connect(ctx, s.url("", "")); err != nil {
		return fmt.Errorf("connect to the server of the tests: %w", err)
	}
	s.template = "bothy_template_" + random()
	if _, err := s.admin.Exec(ctx, `CREATE DATABASE `+s.template+` TEMPLATE template0 ENCODING 'UTF8'`); err != nil {
		return fmt.Errorf("create the template database: %w", err)
	}
	_, err = postgres.Migrate(ctx, postgres.MigrateOptions{
		AdminURL: s.url("", s.template), Schema: Schema, Owner: OwnerRole, App: AppRole, Producers: []string{ProducerRole},
		Bootstrap: true, PartitionsAhead: 1, Environment: "test", JobsSchema: JobsSchema, JobsMigrate: true,
	})
	if err != nil {
		return fmt.Errorf("migrate the template database: %w", err)
	}
	// A copy is another database, and its tests are not about that.
	if err := postgres.RunScript(ctx, s.url("", s.template), `UPDATE `+Schema+`.instance SET pg_database_oid = NULL`); err != nil {
		return fmt.Errorf("make copies of the template database known: %w", err)
	}
	if s.own == nil {
		for _, role := range []string{OwnerRole, AppRole, ProducerRole} {
			if _, err := s.admin.Exec(ctx, `ALTER ROLE `+role+` PASSWORD '`+password+`'`); err != nil {
				return fmt.Errorf("give the role %s a password: %w", role, err)
			}
		}
	}
	return nil
}

// url leads to a database as a role; an empty role is the administrator, an empty database that of the
// administrator.
func (s *server) url(role, database string) string {
	if s.own != nil {
		if role == "" {
			role = devdb.Superuser
		}
		if database == "" {
			database = "postgres"
		}
		return s.own.URL(role, database)
	}
	u := *s.existing
	if role != "" {
		u.User = url.UserPassword(role, password)
	}
	if database != "" {
		u.Path = "/" + database
	}
	return u.String()
}

// clone makes a database from the template, or an empty one.
func (s *server) clone(empty bool) (name string, err error) {
	if err := s.ready(); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	name = fmt.Sprintf("bothy_test_%s_%d", s.template[len("bothy_template_"):], s.count)
	statement := `CREATE DATABASE ` + name + ` TEMPLATE ` + s.template
	if s.own != nil {
		// Half the time, where the checkpoint that it takes costs nothing because nothing is synced.
		statement += ` STRATEGY file_copy`
	}
	if empty {
		statement = `CREATE DATABASE ` + name + ` TEMPLATE template0 ENCODING 'UTF8'`
	}
	return name, s.exec(statement)
}

func (s *server) drop(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exec(`DROP DATABASE IF EXISTS ` + name + ` WITH (FORCE)`)
}

func (s *server) exec(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if _, err := s.admin.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

func (s *server) stop() error {
	var errs []error
	if s.admin != nil {
		if s.own == nil && s.template != "" {
			errs = append(errs, s.drop(s.template))
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		errs = append(errs, s.admin.Close(ctx))
	}
	if s.own != nil {
		errs = append(errs, s.own.Stop())
	}
	return errors.Join(errs...)
}

func random() string { return strings.ToLower(rand.Text()[:10]) }
