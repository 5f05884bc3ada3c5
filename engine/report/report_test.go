// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"example.com/bothy/engine/problem"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shop = "version: 1\n" +
	"database: {url: \"postgres://app:hunter2@db.example.com/shop\", schmea: bothy} # hunter2\n" +
	"consumers:\n" +
	"  - name: archive\n" +
	"    bacth: 010\n" +
	"    types: [\"客户.*\", order.*, order.*]\n" +
	"  - name: archive\n"

func open(key string) bool { return slices.Contains([]string{"name", "types", "batch", "query"}, key) }

func at(file string, line, col int) problem.Position {
	return problem.Position{File: file, Line: line, Col: col}
}

// sample has a problem of each sort. It is not sorted.
func sample() Report {
	return Report{
		Files: []File{
			{Name: "shop.yaml", Path: "deploy/my shop.yaml", Text: []byte(shop), Shown: open, Consumers: -1},
			{Name: "fine.yaml", Consumers: 2},
			{Name: "-", Consumers: -1, Text: []byte("version: 2\n")},
		},
		Tables: &Tables{Names: []string{"round"}, Paths: 14, Cases: 3},
		Kinds: []problem.Kind{
			{Code: "bad-url", Severity: problem.Error, Means: "A URL cannot be read."},
			{Code: "unknown-key", Severity: problem.Error, Means: "A key is not known."},
			{Code: "unset-variable", Severity: problem.Warning, Means: "A variable is not set."},
			{Code: "unknown-key", Severity: problem.Error, Means: "A second kind of the same code."},
		},
		Version: "v0.1.0", Refused: true,
		Problems: problem.List{
			{At: at("shop.yaml", 7, 11), Severity: problem.Error, Code: "duplicate-name", What: `the name "archive" is taken`, Fix: "choose another", Also: at("shop.yaml", 4, 11)},
			{At: at("-", 1, 10), Severity: problem.Error, Code: "bad-version", What: "version is \"2\"", Fix: "write 1"},
			{At: at("shop.yaml", 2, 17), Severity: problem.Error, Code: "bad-url", What: "database.url is a text that is not shown here, whose 100% [host](x) is wrong"},
			{At: at("shop.yaml", 5, 5), Severity: problem.Error, Code: "unknown-key", What: `the key "bacth" is not known`, Fix: `did you mean "batch"?`},
			{At: at("shop.yaml", 6, 13), Severity: problem.Warning, Code: "unset-variable", What: "first"},
			{At: at("shop.yaml", 6, 29), Severity: problem.Warning, Code: "duplicate-entry", What: "second", Fix: "the path is\n        line 4: one\n        line 5: two"},
			{At: at("gone,100%.yaml", 1, 1), Severity: problem.Error, Code: "no-file", What: "there is no such file"},
			{At: at("shop.yaml", 9, 1), Severity: problem.Error, Code: "bad-yaml", What: "behind the end"},
		},
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run: go test ./engine/report -update", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got)\n%s\nif this is meant, run: go test ./engine/report -update", file, diff)
	}
}

// TestGolden holds every format, byte for byte. The input is in another order each time.
func TestGolden(t *testing.T) {
	for _, f := range Formats() {
		r := sample()
		golden(t, "shop."+string(f), Render(r, f))
		slices.Reverse(r.Problems)
		again := Render(r, f)
		golden(t, "shop."+string(f), again)
		if bytes.Contains(again, []byte("hunter2")) {
			t.Errorf("%s shows a password:\n%s", f, again)
		}
	}
	r := sample()
	r.Colour = true
	got := Render(r, Text)
	golden(t, "shop.colour", bytes.ReplaceAll(got, []byte("\x1b"), []byte("ESC")))
	stripped := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAll(got, nil)
	if diff := cmp.Diff(string(Render(sample(), Text)), string(stripped)); diff != "" {
		t.Errorf("colours change the text (-without +with)\n%s", diff)
	}
}

// Nothing found is a valid document of every format too.
func TestNothingFound(t *testing.T) {
	for _, f := range Formats() {
		golden(t, "nothing."+string(f), Render(Report{Files: []File{{Name: "consumers.yaml", Consumers: 1}}}, f))
	}
}

// Without a source the text is what the list prints, and the summary.
func TestTextIsTheList(t *testing.T) {
	r := sample()
	r.Files = nil
	want := r.Problems.Error() + "\n6 errors, 2 warnings in 3 files\n"
	if diff := cmp.Diff(want, string(Render(r, Text))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestSummary(t *testing.T) {
	e, w := problem.Problem{At: at("a", 1, 1), Severity: problem.Error}, problem.Problem{At: at("b", 1, 1), Severity: problem.Warning}
	for _, c := range []struct {
		problems problem.List
		want     string
	}{
		{nil, ""},
		{problem.List{e}, "1 error in 1 file"},
		{problem.List{w}, "1 warning in 1 file"},
		{problem.List{e, e, w}, "2 errors, 1 warning in 2 files"},
		{problem.List{e, w, w}, "1 error, 2 warnings in 2 files"},
	} {
		if got := Summary(c.problems); got != c.want {
			t.Errorf("%v: got %q, want %q", c.problems, got, c.want)
		}
	}
}

// A fingerprint stays when lines move, and differs between problems.
func TestFingerprints(t *testing.T) {
	prints := func(text string, problems ...problem.Problem) []string {
		return newDesk(Report{Files: []File{{Name: "a", Text: []byte(text), Shown: open}}, Problems: problems}).fingerprints()
	}
	one := problem.Problem{At: at("a", 2, 3), Code: "bad-name", What: "consumers[0].name is bad, see line 2"}
	moved := problem.Problem{At: at("a", 4, 5), Code: "bad-name", What: "consumers[12].name is bad, see line 4"}
	before, after := prints("x\n  name: a\n", one), prints("x\ny\nz\n    name:  a # why\n", moved)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the fingerprint moved with its line\n%s", diff)
	}
	other := one
	other.Code = "bad-kind"
	all := prints("x\n  name: a\n  name: b\n", one, one, other, problem.Problem{At: at("a", 3, 3), Code: one.Code, What: one.What})
	slices.Sort(all)
	if len(slices.Compact(all)) != 4 {
		t.Errorf("four problems have the fingerprints %q", all)
	}
}

func TestAddresses(t *testing.T) {
	for path, want := range map[string]sarifFile{
		"consumers.yaml":         {"consumers.yaml", sarifRoot},
		"a b/c#d?e%f:g.yaml":     {"a%20b/c%23d%3Fe%25f%3Ag.yaml", sarifRoot},
		"ünï.yaml":               {"%C3%BCn%C3%AF.yaml", sarifRoot},
		"/tmp/a b.yaml":          {"file:///tmp/a%20b.yaml", ""},
		"C:/shop/a b.yaml":       {"file:///C:/shop/a%20b.yaml", ""},
		"//files/shop/a.yaml":    {"file://files/shop/a.yaml", ""},
		"-":                      {"stdin", sarifRoot},
		"mailto:alex@home.y\\ml": {"mailto%3Aalex%40home.y%5Cml", sarifRoot},
	} {
		if got := newDesk(Report{}).sarifFile(path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

// wantSound fails when a report is no document of its format, or shows what it must not.
func wantSound(t *testing.T, r Report) {
	t.Helper()
	for _, f := range []Format{JSON, SARIF, GitLab} {
		if got := Render(r, f); !json.Valid(got) {
			t.Errorf("%s is no JSON:\n%s", f, got)
		}
	}
	got := string(Render(r, GitHub))
	if n := strings.Count(got, "\n"); n != len(r.Problems) || strings.ContainsRune(got, '\r') {
		t.Errorf("%d problems are %d lines for GitHub:\n%q", len(r.Problems), n, got)
	}
	text := string(Render(r, Text))
	if strings.ContainsAny(text, "\x1b\r\x00\u202e") {
		t.Errorf("the text holds a control character: %q", text)
	}
}

func FuzzRender(f *testing.F) {
	for _, text := range []string{shop, "", "\ufeffa: b", "\t\x1b[31mx", "url: |\n  a\n b", "{[\"'", "a: ${B}}", "\u202ex\u0301\u0301", "- - - ? a: 'b''c' : d"} {
		f.Add(text, "shop.yaml", 2, 3, "what", "fix")
	}
	f.Add("a: b", "a\nb\x1b:%,", -1, 0, "::error::\r\n%0A", "\x00")
	f.Fuzz(func(t *testing.T, text, name string, line, col int, what, fix string) {
		p := problem.Problem{At: at(name, line, col), Severity: problem.Warning, Code: "some-code", What: what, Fix: fix, Also: at(name, col, line)}
		r := Report{Files: []File{{Name: name, Text: []byte(text), Shown: open}}, Problems: problem.List{p, p}}
		wantSound(t, r)
		for n := 1; n <= min(strings.Count(text, "\n")+1, 5); n++ {
			r.Problems = append(r.Problems, problem.Problem{At: at(name, n, max(col, 1)), Severity: problem.Error, Code: what, What: what})
		}
		wantSound(t, r)
	})
}
