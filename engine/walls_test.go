// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// house is the module path; a room is a package, named by its folder below it.
const house = "example.com/bothy"

// Import paths that the walls speak of. A pattern stands for the package and everything below it.
const (
	modFSM   = "github.com/looplab/fsm"
	modYAML  = "gopkg.in/yaml.v3"
	modPGX   = "github.com/jackc/pgx/v5"
	modRiver = "github.com/riverqueue/river"
	modGoose = "github.com/pressly/goose/v3"
	modCobra = "github.com/spf13/cobra"
	modSQL   = "database/sql"
)

// wall is what one room must not know.
type wall struct {
	reason string
	// only, when not nil, lists everything that the room may import itself (patterns; the standard library
	// is listed too).
	only []string
	// never must not be reached at all, not even through another room.
	never []string
	// notItself must not be imported by the room itself; a room below it may.
	notItself []string
}

// rooms holds a row for every package of the house. A new room gets its row with its first file.
var rooms = map[string]wall{
	"definitions": {
		reason: "tables and the embed that carries them; they know nothing",
		only:   []string{"embed"},
	},
	"migrations": {
		reason: "numbered SQL and the embed that carries it",
		only:   []string{"embed", "io/fs"},
	},
	"cmd/bench": {
		reason:    "measures the engine beside raw statements and raw River, so it knows the edge, and no file formats",
		notItself: []string{modFSM, modYAML, modGoose, modSQL},
	},
	"cmd/engine": {
		reason:    "flags, wiring, printing and exit codes: no SQL, no YAML nodes, no tables run by hand",
		never:     []string{"testing"},
		notItself: []string{modFSM, modYAML, modGoose, modSQL},
	},
	"docs/examples/shop": {
		reason: "a program of a user: it shows appending and embedding through what the engine offers to programs",
		never:  []string{modCobra, house + "/engine/devdb"},
	},
	"cmd/reference": {
		reason:    "writes the pages of docs/reference from what the rooms declare",
		never:     []string{"testing"},
		notItself: []string{modFSM, modYAML, modPGX, modRiver, modGoose, modSQL},
	},
	"docs/examples/worker": {
		reason: "a program of a user: it shows that working a job needs nothing of the engine",
		never:  []string{house + "/engine", house + "/definitions", house + "/migrations"},
	},
	"engine": {
		reason:    "assembles roles and orders start and stop; statements and YAML nodes belong to its rooms",
		never:     []string{"testing", modCobra},
		notItself: []string{modFSM, modYAML, modGoose, modSQL},
	},
	"engine/api": {
		reason: "serves what it is handed over HTTP: no rounds, no statements, no files",
		never:  []string{modPGX, modRiver, modSQL, modGoose, modFSM, modYAML, modCobra, house + "/engine/consumer", house + "/engine/config", house + "/engine/telemetry"},
	},
	"engine/cloudevents": {
		reason: "reads files and hands over plain values; it knows no database",
		never:  []string{modPGX, modRiver, modSQL},
	},
	"engine/config": {
		reason: "validate works without a database, so what it stands on opens none",
		never:  []string{modPGX, modRiver, modSQL, modGoose, modFSM, house + "/engine/postgres", house + "/engine/machine"},
	},
	"engine/consumer": {
		reason:    "the runner and the steps of a round talk to a store; the text of a statement is not theirs",
		never:     []string{modCobra, house + "/engine/config"},
		notItself: []string{modFSM, modYAML, modPGX, modSQL, modRiver, modGoose},
	},
	"engine/devdb": {
		reason: "finds and runs a server; what is in it is others' business",
		never:  []string{house + "/engine", house + "/migrations", house + "/definitions", modYAML, modRiver},
	},
	"engine/document": {
		reason: "reads files into declared structs; what the files mean, and every database, is others' business",
		only: []string{
			"bytes", "encoding/json", "errors", "fmt", "io", "io/fs", "log/slog", "net/url", "os", "reflect", "regexp", "slices",
			"strconv", "strings", "sync", "time", "unicode", "unicode/utf8",
			modYAML, "github.com/go-playground/validator/v10", house + "/engine/problem",
		},
		never: []string{modPGX, modRiver, modSQL, modGoose, modFSM, house + "/engine/config", house + "/engine/machine"},
	},
	"engine/diagram": {
		reason: "draws tables; what they are about is not its business",
		only:   []string{"cmp", "fmt", "slices", "strings", house + "/engine/machine"},
	},
	"engine/finalize": {
		reason:    "runs the restore table over a store; no statement and no file is its own",
		never:     []string{modPGX, modRiver, modSQL, modGoose, modCobra, house + "/engine/config", house + "/engine/postgres", house + "/engine/consumer"},
		notItself: []string{modFSM, modYAML},
	},
	"engine/enginetest": {
		reason: "fixtures for tests below the commands",
		never:  []string{house + "/cmd", modCobra},
	},
	"engine/enginetest/cluster": {
		reason: "whole servers for tests below the commands",
		never:  []string{house + "/cmd", modCobra},
	},
	"engine/expect": {
		reason:    "tests of consumers are judged without knowing how a database answers, or who prints the verdict",
		never:     []string{modPGX, modRiver, modSQL, modGoose, modFSM, modCobra, house + "/engine/postgres", house + "/engine/machine"},
		notItself: []string{modYAML},
	},
	"engine/jobs": {
		reason:    "inserts what it is given; who gets a job was decided before",
		never:     []string{modYAML, modFSM, house + "/engine/config", house + "/engine/machine", house + "/engine/consumer"},
		notItself: []string{modSQL},
	},
	"engine/machine": {
		reason: "a table knows steps, answers and ends, not what a step does to which consumer",
		never: []string{
			modPGX, modRiver, modSQL, modGoose, house + "/engine/consumer", house + "/engine/postgres",
			house + "/engine/config", house + "/engine/jobs", house + "/engine/round",
		},
	},
	"engine/postgres": {
		reason: "every statement, and nothing of the files that led to it",
		never:  []string{modYAML, modFSM, house + "/engine/config", house + "/engine/machine", house + "/engine/consumer"},
	},
	"engine/problem": {
		reason: "what every reader of a file reports with; it stands on the standard library alone",
		only:   []string{"cmp", "errors", "fmt", "slices", "strings", "unicode/utf8"},
	},
	"engine/producer": {
		reason: "an application imports it to append and must not pull in the engine",
		never:  []string{house + "/engine", house + "/migrations", house + "/definitions", modRiver, modGoose, modYAML, modFSM},
	},
	"engine/report": {
		reason: "pure: problems and texts in, bytes out; it reads no file and no environment",
		only: []string{
			"bytes", "crypto/sha256", "encoding/hex", "encoding/json", "fmt", "regexp", "slices", "strconv", "strings", "sync",
			"unicode", "unicode/utf8", house + "/engine/problem",
		},
	},
	"engine/restore": {
		reason: "pure: what a restore means, as values; no statement, no table of steps, no clock",
		only: []string{
			"bytes", "encoding/hex", "encoding/json", "errors", "fmt", "io", "strconv", "time", house + "/engine/round",
		},
	},
	"engine/simulate": {
		reason: "runs the real rounds on a model of the database, so that a seed decides everything: no database, no queue",
		never:  []string{modPGX, modRiver, modSQL, modGoose, house + "/engine/postgres", house + "/engine/jobs", house + "/engine/config"},
	},
	"engine/statuspage": {
		reason: "a page and who may read it; values are handed to it",
		only: []string{
			"bytes", "context", "crypto/rand", "crypto/sha256", "crypto/subtle", "embed", "encoding/hex", "encoding/json", "fmt",
			"html/template", "net", "net/http", "net/netip", "strconv", "strings", "sync", "sync/atomic", "time",
		},
	},
	"engine/telemetry": {
		reason: "values and names are handed to it; it asks no database and runs no round",
		never:  []string{modPGX, modRiver, modSQL, modGoose, modFSM, modYAML, modCobra, house + "/engine/consumer", house + "/engine/config", house + "/engine/postgres"},
	},
	"engine/restored": {
		reason: "tests alone: real servers that are restored under the engine",
		only:   []string{},
	},
	"engine/riverpage": {
		reason: "River UI and nothing else: only `engine dev` carries it",
		never:  []string{house + "/engine", modYAML, modFSM},
	},
	"engine/round": {
		reason: "the pure core: values in, values out; no IO, no clock, no other room",
		only: []string{
			"cmp", "encoding/json", "errors", "fmt", "iter", "maps", "slices", "strconv", "strings", "time",
		},
	},
}

// ownedModules lists the modules that only some rooms may import themselves. Tests may use what they need.
var ownedModules = []struct {
	pkg    string
	by     []string
	reason string
}{
	{modFSM, []string{"engine/machine"}, "one room knows how a table is run"},
	{modYAML, []string{"engine/document", "engine/machine"}, "YAML ends where it was read; others are handed values"},
	{modGoose, []string{"engine/postgres"}, "migrating is the work of one room"},
	{modCobra, []string{"cmd/engine"}, "flags and help belong to the command"},
	{
		modPGX,
		[]string{
			"engine/postgres", "engine/jobs", "engine/riverpage", "engine/producer", "engine/devdb", "engine/enginetest", "engine/enginetest/cluster", "cmd/engine",
			"docs/examples/shop", "docs/examples/worker", "cmd/bench",
			"engine", // passes on a tracer of the caller's
		},
		"the database is the edge",
	},
	{
		modRiver,
		[]string{"engine/jobs", "engine/postgres", "engine/riverpage", "engine/enginetest", "docs/examples/worker", "cmd/bench"},
		"one room inserts jobs and one migrates; nobody else knows the queue",
	},
	{house + "/engine/riverpage", []string{"cmd/engine"}, "a program of a user must not carry River UI"},
	{house + "/engine/enginetest", []string{"engine/enginetest/cluster"}, "fixtures are for tests; no program carries them"},
}

// packageFacts is what `go list` says of one package.
type packageFacts struct {
	ImportPath string
	Imports    []string // by the package itself, without its tests
	Deps       []string // all that it reaches
	Standard   bool
}

// room is the folder of a package of the house, or "" for any other.
func (p packageFacts) room() string {
	if p.ImportPath == house {
		return "."
	}
	room, inside := strings.CutPrefix(p.ImportPath, house+"/")
	if !inside {
		return ""
	}
	return room
}

// isUnder reports whether pkg is pattern or lies below it. Below database/sql lies only the set of interfaces
// that types such as a UUID implement: that is no database.
func isUnder(pkg, pattern string) bool {
	if pattern == modSQL {
		return pkg == modSQL
	}
	return pkg == pattern || strings.HasPrefix(pkg, pattern+"/")
}

// breaches lists what each package of the house does against the walls, sorted.
func breaches(packages []packageFacts) []string {
	var found []string
	report := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	seen := map[string]bool{}
	for _, p := range packages {
		name := p.room()
		if name == "" {
			continue
		}
		seen[name] = true
		w, known := rooms[name]
		if !known {
			report("%s has no row in rooms: say what it must not know", name)
			continue
		}
		for _, dep := range p.Imports {
			if w.only != nil && !slices.Contains(w.only, dep) {
				report("%s imports %s (%s)", name, dep, w.reason)
			}
			if slices.ContainsFunc(w.notItself, func(banned string) bool { return isUnder(dep, banned) }) {
				report("%s imports %s itself (%s)", name, dep, w.reason)
			}
			for _, o := range ownedModules {
				if isUnder(dep, o.pkg) && !slices.Contains(o.by, name) {
					report("%s imports %s, which belongs to %v (%s)", name, dep, o.by, o.reason)
				}
			}
		}
		for _, dep := range p.Deps {
			if slices.ContainsFunc(w.never, func(banned string) bool { return isUnder(dep, banned) }) {
				report("%s reaches %s (%s)", name, dep, w.reason)
			}
		}
	}
	for name := range rooms {
		if !seen[name] {
			report("%s has a row in rooms and no package", name)
		}
	}
	slices.Sort(found)
	return found
}

// listPackages asks the go command for every package of the house and all that they reach.
func listPackages(t *testing.T) []packageFacts {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Imports,Deps,Standard", "./...")
	cmd.Dir = houseRoot(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []packageFacts
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p packageFacts
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages
		case err != nil:
			t.Fatalf("go list printed something that is no JSON: %v", err)
		}
		packages = append(packages, p)
	}
}

// TestWalls holds every "must not know" of docs/architecture.md.
func TestWalls(t *testing.T) {
	t.Parallel()
	for _, breach := range breaches(listPackages(t)) {
		t.Error(breach)
	}
}

// TestWallsCanFail shows that each kind of wall finds its breach, so that TestWalls is more than a green
// light.
func TestWallsCanFail(t *testing.T) {
	t.Parallel()
	var packages []packageFacts
	for name := range rooms {
		packages = append(packages, packageFacts{ImportPath: path.Join(house, name)})
	}
	if got := breaches(packages); len(got) > 0 {
		t.Fatalf("empty rooms: got %q, want no breach", got)
	}
	with := func(name string, imports, deps []string) []string {
		changed := slices.Clone(packages)
		i := slices.IndexFunc(changed, func(p packageFacts) bool { return p.room() == name })
		if i < 0 {
			return breaches(append(changed, packageFacts{ImportPath: path.Join(house, name)}))
		}
		changed[i].Imports, changed[i].Deps = imports, deps
		return breaches(changed)
	}
	for _, c := range []struct {
		name          string
		room          string
		imports, deps []string
		want          []string
	}{
		{"outside the only list", "engine/round", []string{"fmt", "os"}, nil, []string{
			"engine/round imports os (" + rooms["engine/round"].reason + ")",
		}},
		{"through another room", "engine/config", nil, []string{modPGX + "/pgconn"}, []string{
			"engine/config reaches " + modPGX + "/pgconn (" + rooms["engine/config"].reason + ")",
		}},
		{"itself", "engine/jobs", []string{modSQL}, []string{modSQL}, []string{
			"engine/jobs imports " + modSQL + " itself (" + rooms["engine/jobs"].reason + ")",
		}},
		{"a module of another room", "engine/cloudevents", []string{modCobra}, nil, []string{
			"engine/cloudevents imports " + modCobra + ", which belongs to [cmd/engine] (flags and help belong to the command)",
		}},
		{"a room without a row", "engine/attic", nil, nil, []string{
			"engine/attic has no row in rooms: say what it must not know",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, with(c.room, c.imports, c.deps)); diff != "" {
				t.Errorf("%s with imports %v and deps %v (-want +got):\n%s", c.room, c.imports, c.deps, diff)
			}
		})
	}
	if got, want := breaches(packages[1:]), 1; len(got) != want {
		t.Errorf("a row without a room: got %q, want %d breach", got, want)
	}
}
