// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The cases of the groups rounds, wake, retention, jobs, lifecycle and restore, by number.
var guaranteedCases = []int{17, 18, 21, 22, 24, 26, 27, 28, 29, 31, 33, 34, 35, 36, 37, 40, 42, 43, 45, 47, 49, 51, 52, 53, 55, 88, 90, 92, 69, 70, 72, 74, 75, 77, 79}

// TestGuaranteesNameWhatExists: a promise whose test is gone is not held by anything.
func TestGuaranteesNameWhatExists(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(houseRoot(t), "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, texts := map[string]bool{}, map[string]bool{} // the tests, and the names that their subtests are made of
	everyFile(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, "_test.go") {
			return
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			tests[m[1]] = true
		}
		for _, m := range regexp.MustCompile(`"([^"\n]+)"`).FindAllStringSubmatch(string(text), -1) {
			texts[strings.ReplaceAll(m[1], " ", "_")] = true
		}
	})
	named := regexp.MustCompile("`(Test\\w+)(?:/([\\w-]+))?`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 50 {
		t.Fatalf("the page names %d tests: the search is broken", len(named))
	}
	for _, n := range named {
		if !tests[n[1]] {
			t.Errorf("docs/guarantees.md names %s, and there is no such test: name the one that shows it now", n[1])
		}
		fault, moment, both := strings.Cut(n[2], "_at_")
		if n[2] != "" && !texts[n[2]] && !(both && texts[fault] && texts[moment]) {
			t.Errorf("docs/guarantees.md names %s/%s, and no test has such a part", n[1], n[2])
		}
	}
	for _, path := range regexp.MustCompile("`([\\w/.]+\\.(?:txtar|go))`").FindAllStringSubmatch(string(page), -1) {
		if _, err := os.Stat(filepath.Join(houseRoot(t), filepath.FromSlash(path[1]))); err != nil {
			t.Errorf("docs/guarantees.md names %s, which is not there", path[1])
		}
	}
	for _, n := range guaranteedCases {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %d \|[^|]+\| [^|]+ \|$`, n)).FindString(string(page))
		if row == "" {
			t.Errorf("docs/guarantees.md has no row for case %d: name a test, or say why it cannot happen", n)
		} else if !strings.Contains(row, "`Test") && !strings.Contains(row, "cannot") {
			t.Errorf("docs/guarantees.md says of case %d neither a test nor why it cannot happen: %s", n, row)
		}
	}
}

// TestOperationsExplainEveryFinding: a code that the page does not explain is a riddle to whoever gets it.
func TestOperationsExplainEveryFinding(t *testing.T) {
	t.Parallel()
	wantExplained(t, "doctor.go", `Finding\w+ +FindingCode = "([a-z_]+)"`, 20)
}

// wantExplained checks that the page for operators has a row for every word that a pattern finds in a source file, at least
// as many as there were.
func wantExplained(t *testing.T, file, pattern string, least int) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(pattern).FindAllStringSubmatch(string(source), -1)
	if len(words) < least {
		t.Fatalf("found %d words in %s: the search is broken", len(words), file)
	}
	for _, w := range words {
		if !strings.Contains(string(page), "| `"+w[1]+"` |") {
			t.Errorf("docs/operations.md does not explain %q of %s: give it a row", w[1], file)
		}
	}
}
