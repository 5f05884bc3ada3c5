// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/problem"
)

var update = flag.Bool("update", false, "rewrite the want.txt files of testdata")

// TestDatabaseCases compares everything that is said about a file and a database. A folder is named after the
// code that it shows; what follows a dot tells several of one code apart, and fine has none. database.sql is
// run by the superuser in a migrated database that knows the declared consumers; a first line
// "-- names: none" leaves them unknown.
func TestDatabaseCases(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/database/*/consumers.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no case files: %v", err)
	}
	for _, file := range files {
		folder := filepath.Dir(file)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			problems := databaseCase(t, folder)
			got := ""
			if len(problems) > 0 {
				got = superuser.ReplaceAllString(problems.Error(), "$1 ADMIN") + "\n"
			}
			want := filepath.Join(folder, "want.txt")
			if *update {
				if err := os.WriteFile(want, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(want)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s\nif this is meant, run: go test ./engine -run TestDatabaseCases -update", folder, diff)
			}
			code, _, _ := strings.Cut(filepath.Base(folder), ".")
			if has := strings.Contains(got, "["+code+"]"); has == (code == "fine") || code == "fine" && got != "" {
				t.Errorf("%s: want the code %s in\n%s", folder, code, got)
			}
		})
	}
}

// superuser is the name of the administrator, which is another one on another server.
var superuser = regexp.MustCompile(`(the role|name) postgres\b`)

func databaseCase(t *testing.T, folder string) problem.List {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	text, setup := read("consumers.yaml"), read("database.sql")
	parse := func(env map[string]string) *config.Config {
		cfg, problems := config.Parse("consumers.yaml", []byte(text), func(name string) (string, bool) { value, ok := env[name]; return value, ok })
		if len(problems) > 0 {
			t.Fatalf("%s:\n%v", folder, problems)
		}
		return cfg
	}
	names := parse(map[string]string{"APP_URL": "postgres://x", "ADMIN_URL": "postgres://x", "OWNER_URL": "postgres://x"}).Names()
	if strings.HasPrefix(setup, "-- names: none") {
		names = nil
	}
	db := enginetest.New(t, enginetest.WithConsumers(names...))
	if _, err := enginetest.Connect(t, db.AdminURL).Exec(t.Context(), setup, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%s/database.sql: %v", folder, err)
	}
	return checkDatabase(t, parse(map[string]string{"APP_URL": db.AppURL, "ADMIN_URL": db.AdminURL, "OWNER_URL": db.OwnerURL}))
}

// TestDatabaseKinds: a code that is printed is explained, one that is explained is printed, and each has a case.
func TestDatabaseKinds(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	for _, file := range []string{"checkdatabase.go", "engine.go", "postgres/inspectrule.go", "postgres/inspectcursors.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	printed := map[string]bool{}
	for _, match := range regexp.MustCompile(`"([a-z]+(?:-[a-z]+)+|standby)"`).FindAllStringSubmatch(source.String(), -1) {
		printed[match[1]] = true
	}
	// Servers that a test cannot make at will are tested one by one.
	elsewhere := []string{"old-server", "new-server", "bad-encoding", "standby", "pooled-connection", "unknown-handler"}
	kinds := engine.DatabaseKinds()
	if !slices.IsSortedFunc(kinds, func(a, b problem.Kind) int { return strings.Compare(a.Code, b.Code) }) {
		t.Error("the kinds are not in the order of their codes")
	}
	for _, k := range kinds {
		if !printed[k.Code] {
			t.Errorf("the code %s is explained and never printed", k.Code)
		}
		if found, _ := filepath.Glob("testdata/database/" + k.Code + "*/want.txt"); len(found) == 0 && !slices.Contains(elsewhere, k.Code) {
			t.Errorf("the code %s has no case testdata/database/%s", k.Code, k.Code)
		}
		if (k.Severity != problem.Error && k.Severity != problem.Warning) || !strings.HasSuffix(k.Means, ".") {
			t.Errorf("the kind of %s is not complete: %+v", k.Code, k)
		}
	}
	for code := range printed {
		if !slices.ContainsFunc(kinds, func(k problem.Kind) bool { return k.Code == code }) {
			t.Errorf("the code %s is printed and not explained", code)
		}
	}
}
