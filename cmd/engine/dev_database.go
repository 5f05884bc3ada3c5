// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/bothy/engine/devdb"
	"example.com/bothy/engine/postgres"
)

// devDB is the database of one run of dev.
type devDB struct {
	url    string
	name   string // of the database that was made; empty on a private server
	stop   func() error
	server *devdb.Server // nil on a server of somebody else
}

// watch is a context that ends when the private server does, with what its log says last as the cause.
func (d devDB) watch(ctx context.Context) (context.Context, context.CancelFunc) {
	watched, cancel := context.WithCancelCause(ctx)
	if d.server != nil {
		go func() {
			select {
			case <-d.server.Done():
				cancel(d.server.Trouble())
			case <-watched.Done():
			}
		}()
	}
	return watched, func() { cancel(nil) }
}

// devDatabase is a database for dev alone.
func devDatabase(cmd *cobra.Command, f devFlags, env lookupEnv, avoid []string, consumers int) (devDB, error) {
	existing, err := givenServer(env, avoid)
	if err != nil {
		return devDB{}, err
	}
	if existing != "" {
		if err := mayCreate(cmd.Context(), existing); err != nil {
			return devDB{}, err
		}
		made, err := scratchDatabase(cmd.Context(), cmd.ErrOrStderr(), existing, "bothy_dev_")
		if err != nil {
			return devDB{}, err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "database %s made on the server %s of %s\n", made.name, postgres.Address(existing), serverVariable)
		return made, nil
	}
	server, err := devdb.Start(cmd.Context(), devdb.Options{
		Data: f.data, Durable: f.data != "", Fetch: true, Log: cmd.ErrOrStderr(), MaxConnections: 100 + 2*consumers,
	})
	if err != nil {
		return devDB{}, err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "private PostgreSQL %s started\n", server.Version())
	return devDB{url: server.URL(devdb.Superuser, "postgres"), stop: server.Stop, server: server}, nil
}

// Databases on a server of somebody else are named PREFIX TIME _ RANDOM, so that a later run can tell which
// ones nobody will come back for.
const (
	scratchTime = "20060102150405"
	scratchAge  = time.Hour // a run that is still making its database has no session there yet
)

// scratchDatabase makes a database on a server that exists, for this command alone, and drops what earlier
// ones have left; stop drops it.
func scratchDatabase(ctx context.Context, say io.Writer, server, prefix string) (devDB, error) {
	name := prefix + time.Now().UTC().Format(scratchTime) + "_" + strings.ToLower(rand.Text()[:10])
	url, err := withDatabase(server, name)
	if err != nil {
		return devDB{}, err
	}
	if err := postgres.CreateDatabase(ctx, server, name); err != nil {
		return devDB{}, fmt.Errorf("make the database %s on the server of %s: %w", name, serverVariable, err)
	}
	sweepScratch(ctx, say, server, prefix)
	return devDB{url: url, name: name, stop: func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropLimit)
		defer cancel()
		if err := postgres.DropDatabase(ctx, server, name); err != nil {
			return fmt.Errorf("drop the database %s, which this command made on the server of %s: %w", name, serverVariable, err)
		}
		return nil
	}}, nil
}

// sweepScratch drops what runs that were killed have left. That it cannot is no reason to refuse this run.
func sweepScratch(ctx context.Context, say io.Writer, server, prefix string) {
	names, err := postgres.IdleDatabases(ctx, server, prefix)
	for _, name := range names {
		stamp, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "_")
		made, malformed := time.Parse(scratchTime, stamp)
		if malformed != nil || time.Since(made) < scratchAge {
			continue
		}
		if dropErr := postgres.DropIdleDatabase(ctx, server, name); dropErr != nil {
			err = errors.Join(err, dropErr)
			continue
		}
		fmt.Fprintf(say, "database %s dropped, which an earlier run had left\n", name)
	}
	if err != nil {
		fmt.Fprintf(say, "note: databases that earlier runs have left could not be dropped: %v\n", err)
	}
}

// dropLimit bounds the last statement of a run.
const dropLimit = 30 * time.Second

// withDatabase is the address of another database on the same server, in either way to write one.
func withDatabase(server, name string) (string, error) {
	if !strings.HasPrefix(server, "postgres://") && !strings.HasPrefix(server, "postgresql://") {
		return server + " dbname=" + name, nil // the last value of a word counts
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("%s is no address of a database", serverVariable) // the cause would print it, password and all
	}
	u.Path = "/" + name
	query := u.Query()
	query.Del("dbname")
	u.RawQuery = query.Encode()
	return u.String(), nil
}
