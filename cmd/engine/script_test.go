// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"example.com/bothy/engine/enginetest"
)

// The test binary is the command too, when it is called by its name: scripts run the real thing.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "engine" {
		os.Exit(run(os.Args[1:], os.LookupEnv, os.Stdin, os.Stdout, os.Stderr))
	}
	enginetest.Main(m)
}

// Scripts that need no database. DEFINITIONS is the folder of the shipped tables.
func TestScript(t *testing.T) {
	t.Parallel()
	definitions, err := filepath.Abs("../../definitions")
	if err != nil {
		t.Fatal(err)
	}
	runScripts(t, "testdata/script", func(*testing.T) (map[string]string, string) {
		return map[string]string{"DEFINITIONS": definitions}, ""
	})
}

// Scripts that get an empty database each. BOTHY_DATABASE_URL leads to it as the superuser.
func TestDatabaseScript(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/database", func(t *testing.T) (map[string]string, string) {
		t.Helper()
		db := enginetest.New(t, enginetest.Empty())
		return map[string]string{
			"BOTHY_DATABASE_URL": db.AdminURL, "OWNER_URL": db.OwnerURL, "APP_URL": db.AppURL, "PRODUCER_URL": db.ProducerURL,
			"NOWHERE_URL": strings.Replace(db.AdminURL, db.Name, "no_such_database", 1),
		}, db.AdminURL
	})
}

// Scripts in which dev starts a server of its own.
func TestPrivateScript(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/private", func(*testing.T) (map[string]string, string) {
		return map[string]string{"HOME": os.Getenv("HOME"), "TMPDIR": os.TempDir(), "BOTHY_POSTGRES_BIN": os.Getenv("BOTHY_POSTGRES_BIN")}, ""
	})
}

// runScripts runs each script of a folder with the variables and the database that prepare gives it.
//
//	exits CODE engine ARG...   runs the command, which has to end with that exit code
//	sql WANT QUERY             the rows have to be WANT: columns joined by "|", rows by " "
//	until WANT QUERY           the same, within a minute
//	repeat N FILE TEXT         writes a file of N times the text; %d in it is the number, from 1
func runScripts(t *testing.T, folder string, prepare func(*testing.T) (map[string]string, string)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: got %d scripts, %v", folder, len(files), err)
	}
	bin := binary(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			variables, url := prepare(t)
			testscript.Run(t, testscript.Params{
				Files: []string{file}, UpdateScripts: *update, RequireExplicitExec: true,
				Setup: func(e *testscript.Env) error {
					e.Setenv("PATH", bin+string(filepath.ListSeparator)+e.Getenv("PATH"))
					for name, value := range variables {
						e.Setenv(name, value)
					}
					return reachable(e.WorkDir)
				},
				Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
					"exits": exits, "repeat": repeat,
					"sql":   func(ts *testscript.TestScript, _ bool, args []string) { query(ts, url, args) },
					"until": func(ts *testscript.TestScript, _ bool, args []string) { until(ts, url, args) },
				},
			})
		})
	}
}

// reachable opens the folders of a script to the account that root hands a private server to.
func reachable(dir string) error {
	for ; dir != filepath.Clean(os.TempDir()) && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// binary is a folder that holds this test binary under the name of the command.
func binary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "engine")); err != nil {
		t.Fatal(err)
	}
	return bin
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) {
			ts.Fatalf("%q: %v", args[1:], err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("%q: got exit code %d, want %d", args[1:], got, want)
	}
}

func repeat(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: repeat N FILE TEXT")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	var text strings.Builder
	for i := range n {
		text.WriteString(strings.ReplaceAll(args[2], "%d", strconv.Itoa(i+1)) + "\n")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text.String()), 0o600))
}

// query compares the rows of a query with what they have to be.
func query(ts *testscript.TestScript, url string, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: sql WANT QUERY")
	}
	got, err := rowsOf(url, args[1])
	ts.Check(err)
	if got != args[0] {
		ts.Fatalf("%s: got %q, want %q", args[1], got, args[0])
	}
}

// until looks again and again.
func until(ts *testscript.TestScript, url string, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: until WANT QUERY")
	}
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := rowsOf(url, args[1])
		ts.Check(err)
		if got == args[0] {
			return
		}
		select {
		case <-tick.C:
		case <-limit.C:
			ts.Fatalf("%s: still %q after a minute, want %q", args[1], got, args[0])
		}
	}
}

// rowsOf is what a query gives: columns joined by "|", rows by " ".
func rowsOf(url, sql string) (string, error) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return "", err
		}
		columns := make([]string, len(values))
		for i, v := range values {
			columns[i] = fmt.Sprint(v)
		}
		lines = append(lines, strings.Join(columns, "|"))
	}
	return strings.Join(lines, " "), rows.Err()
}
