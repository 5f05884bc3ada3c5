// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/problem"
)

// serverVariable names the server on which dev and test make their databases, in place of a private one.
const serverVariable = "BOTHY_TEST_SERVER_URL"

// givenServer is the address of a server of somebody else, or empty: then a private one is started. One that
// serves the configuration too is refused, since what a setup makes beside its database stays there.
func givenServer(env lookupEnv, avoid []string) (string, error) {
	given, _ := env(serverVariable)
	if given == "" {
		return "", nil
	}
	at := postgres.Address(given)
	if at == "" {
		return "", fmt.Errorf("%s is no address of a database\nfix: write postgres://USER:PASSWORD@HOST:PORT/DATABASE, or unset it to use a private server", serverVariable)
	}
	if slices.ContainsFunc(avoid, func(other string) bool { return postgres.SameServer(given, other) }) {
		return "", fmt.Errorf("%s names %s, the server of the configuration: roles and settings that a setup makes would stay there\nfix: unset it to use a private server, or name another one", serverVariable, at)
	}
	return given, nil
}

// mayCreate is an error when the role of a given server cannot make the databases that dev and test use.
func mayCreate(ctx context.Context, server string) error {
	role, may, err := postgres.MayCreateDatabases(ctx, server)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w; unset it to use a private PostgreSQL", serverVariable, err)
	case !may:
		return fmt.Errorf("the role %s of %s may not create databases, and this command uses one of its own: unset it to use a private PostgreSQL, or give this role CREATEDB", role, serverVariable)
	}
	return nil
}

// realAddresses are those of the databases that the configuration names, as far as the environment tells: what
// variables of it hold, and what is written out.
func realAddresses(parse func(lookupEnv) (*config.Config, problem.List), env lookupEnv) []string {
	var list []string
	noting := func(name string) (string, bool) {
		value, set := env(name)
		if value != "" {
			list = append(list, value) // one that is no address is like none
		}
		return value, set
	}
	noting(databaseVariable)
	cfg, _ := parse(noting)
	if cfg == nil {
		cfg, _ = parse(nil) // as it stands: a variable that is not set is none of a server
	}
	if cfg == nil {
		return list
	}
	_ = cfg.ReadURLFile() // a file that is only there in production names no server here
	for _, url := range []config.Secret{cfg.Database.URL, cfg.Database.AdminURL, cfg.Database.ListenURL} {
		if url != "" {
			list = append(list, string(url))
		}
	}
	if host, _ := env("PGHOST"); host != "" && cfg.Database.URL == "" {
		list = append(list, "") // the variables of PostgreSQL say the rest
	}
	return list
}
