// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the want.txt files of testdata")

// folder is where the tests began: one of them changes it.
var folder, _ = os.Getwd()

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parcel is a grammar with every kind of field.
type parcel struct {
	Version int                           `yaml:"version" validate:"required,eq=1" since:"0.1" doc:"The version."`
	Title   string                        `yaml:"title" validate:"omitempty,title" since:"0.1" doc:"A title."`
	Weight  int                           `yaml:"weight" default:"3" validate:"min=1,max=1000" unit:"grams" since:"0.1" doc:"The weight."`
	Key     Secret                        `yaml:"key" validate:"omitempty,title" since:"0.1" doc:"A secret."`
	Stops   []stop                        `yaml:"stops" word:"none" validate:"omitempty,min=1,max=9,dive" since:"0.1" doc:"Where it stops."`
	Depot   stop                          `yaml:"depot" since:"0.1" doc:"Where it begins."`
	Labels  []string                      `yaml:"labels" validate:"omitempty,dive,title" since:"0.1" doc:"Its labels."`
	Named   map[string]stop               `yaml:"named" validate:"omitempty,max=3,dive,keys,title,endkeys" since:"0.1" doc:"Stops by their names."`
	Rows    map[string][]map[string]Value `yaml:"rows" validate:"omitempty,dive,keys,title,endkeys" since:"0.1" doc:"Rows of tables."`
	Content Value                         `yaml:"content" since:"0.1" doc:"Anything."`
}

type stop struct {
	City   string `yaml:"city" validate:"required,title" since:"0.1" doc:"The city."`
	Weight int    `yaml:"weight" inherit:"weight" validate:"omitempty,min=1,max=1000" unit:"grams" since:"0.1" doc:"The weight from there on."`
	Note   Value  `yaml:"note" since:"0.1" doc:"Anything."`
}

var parcels = &Grammar[parcel]{
	Name: "parcel.yaml", Begin: "version: 1",
	Formats: map[string]Format{"title": {
		Code: "bad-title", Fix: "write at most 40 characters, without !", Example: "shop",
		Trouble: func(text string) (string, string) {
			switch {
			case text == "":
				return "which is empty", ""
			case strings.Contains(text, "!"):
				return "which holds a !", ""
			case len(text) > 400:
				return "which is too long", ""
			default:
				return "", ""
			}
		},
	}},
}

func mustRead(t *testing.T, text string) (*parcel, *Tree) {
	t.Helper()
	into, tree, problems := parcels.Read("parcel.yaml", []byte(text), nil)
	if err := problems.Err(); err != nil {
		t.Fatalf("problems in\n%s\n%v", text, err)
	}
	return into, tree
}

func TestGrammarHasNoFlaws(t *testing.T) {
	for _, flaw := range parcels.Flaws() {
		t.Error(flaw)
	}
}

// TestGolden compares everything that is said about each file of testdata. A folder is named after the code
// that it shows; what follows a dot tells several of one code apart.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*/parcel.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no case files: %v", err)
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			into, _, problems := parcels.Read("parcel.yaml", text, nil)
			var got bytes.Buffer
			if len(problems) > 0 {
				got.WriteString(problems.Error() + "\n")
			}
			wantFile := filepath.Join(filepath.Dir(file), "want.txt")
			if *update {
				if err := os.WriteFile(wantFile, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(wantFile)
			if err != nil {
				t.Fatalf("%v; run: go test ./engine/document -run TestGolden -update", err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s: (-want +got)\n%s\nif this is meant, run: go test ./engine/document -run TestGolden -update", file, diff)
			}
			code, _, _ := strings.Cut(name, ".")
			if code != "fine" && !strings.Contains(got.String(), "["+code+"]") || code == "fine" && into == nil {
				t.Errorf("%s: the code %s does not occur in\n%s", file, code, got.String())
			}
		})
	}
}

// A word in place of a list is an empty list, and not an absent one.
func TestWordForAList(t *testing.T) {
	if into, _ := mustRead(t, "version: 1\nstops: none\n"); into.Stops == nil || len(into.Stops) != 0 {
		t.Errorf("stops: none gives %#v, want an empty list", into.Stops)
	}
	if into, _ := mustRead(t, "version: 1\n"); into.Stops != nil {
		t.Errorf("without stops they are %#v, want nil", into.Stops)
	}
}

// A map holds what was written, and the tree knows the order of its keys.
func TestMaps(t *testing.T) {
	into, tree := mustRead(t, "version: 1\nweight: 7\nnamed:\n  zoo: {city: Ulm}\n  \"a\": {city: Rome, weight: 2}\nrows:\n  shop.watchers:\n    - {id: 1, types: [a, b]}\n    - {id: 2}\n")
	if diff := cmp.Diff(map[string]stop{"zoo": {City: "Ulm", Weight: 7}, "a": {City: "Rome", Weight: 2}}, into.Named); diff != "" {
		t.Errorf("named (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"zoo", "a"}, tree.Keys("named")); diff != "" {
		t.Errorf("keys (-want +got)\n%s", diff)
	}
	if got := string(into.Rows["shop.watchers"][0]["types"]); got != `["a","b"]` {
		t.Errorf("a list in a row is %s", got)
	}
	for path, want := range map[string]string{
		"rows[shop.watchers][0][types]": "parcel.yaml:8:22", "rows[shop.watchers][1][id]": "parcel.yaml:9:12",
		"rows[shop.watchers][1][none]": "parcel.yaml:9:7", "named[a].weight": "parcel.yaml:5:29", "rows[shop.other]": "parcel.yaml:7:3",
	} {
		if got := tree.At(path).String(); got != want {
			t.Errorf("At(%s) is %s, want %s", path, got, want)
		}
	}
}
