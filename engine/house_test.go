// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"example.com/bothy/engine/config"
)

// licenseLine opens every Go file.
const licenseLine = "// SPDX-License-Identifier: Apache-2.0\n"

// houseRoot is the folder of the module.
func houseRoot(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("the folder above the tests is not the module: %v", err)
	}
	return dir
}

// ignored are folders at the top whose files are not ours: built, kept by git, or a cluster of `engine dev`.
var ignored = []string{".git", "bin", "data", ".idea", ".vscode"}

// everyFile calls check with each file of the house, its path relative to the root with slashes.
func everyFile(t *testing.T, check func(name string, text []byte)) {
	t.Helper()
	dir := houseRoot(t)
	files := 0
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(ignored, relative):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files++
		check(filepath.ToSlash(relative), text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Fatalf("looked at %d files, the house has more: the walk is broken", files)
	}
}

// TestEveryGoFileNamesItsLicense keeps the licence with the file when it is copied somewhere else.
func TestEveryGoFileNamesItsLicense(t *testing.T) {
	t.Parallel()
	everyFile(t, func(name string, text []byte) {
		if strings.HasSuffix(name, ".go") && !bytes.HasPrefix(text, []byte(licenseLine)) {
			t.Errorf("%s begins with %q, want %q", name, firstLineOf(text), licenseLine)
		}
	})
}

// TestNoLongDashes: a hyphen can be typed and searched for by everybody.
func TestNoLongDashes(t *testing.T) {
	t.Parallel()
	everyFile(t, func(name string, text []byte) {
		if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
			return // not text
		}
		for i, line := range strings.Split(string(text), "\n") {
			if at := strings.IndexAny(line, "\u2013\u2014"); at >= 0 {
				t.Errorf("%s:%d:%d has an en or em dash, write a hyphen or another sentence: %q",
					name, i+1, utf8.RuneCountInString(line[:at])+1, line)
			}
		}
	})
}

// TestArchitectureNamesEveryRoom: a room that the map does not show is not found.
func TestArchitectureNamesEveryRoom(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(houseRoot(t), "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range rooms {
		if !bytes.Contains(page, []byte("`"+name+"`")) && !bytes.Contains(page, []byte("`"+name+"/`")) {
			t.Errorf("docs/architecture.md does not name %s: give it a row", name)
		}
	}
}

// TestDocumentsLinkToWhatExists: a link inside the house leads somewhere.
func TestDocumentsLinkToWhatExists(t *testing.T) {
	t.Parallel()
	dir := houseRoot(t)
	everyFile(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, ".md") {
			return
		}
		for _, target := range links(string(text)) {
			file, _, _ := strings.Cut(target, "#")
			if file == "" {
				continue // a heading of the same page
			}
			if _, err := os.Stat(filepath.Join(dir, filepath.Dir(filepath.FromSlash(name)), filepath.FromSlash(file))); err != nil {
				t.Errorf("%s links to %q, which is not there", name, target)
			}
		}
	})
}

// links are the targets of the inline links of a Markdown text that stay inside the house.
func links(text string) []string {
	var found []string
	for rest := text; ; {
		_, after, more := strings.Cut(rest, "](")
		if !more {
			return found
		}
		target, tail, closed := strings.Cut(after, ")")
		if !closed {
			return found
		}
		if !strings.Contains(target, "://") && !strings.HasPrefix(target, "mailto:") && !strings.ContainsAny(target, " \n") {
			found = append(found, target)
		}
		rest = tail
	}
}

// TestDocumentsShowValidConfigurations: who copies a configuration from a page gets one that works.
func TestDocumentsShowValidConfigurations(t *testing.T) {
	t.Parallel()
	shown := 0
	everyFile(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, ".md") {
			return
		}
		_, rest, more := strings.Cut(string(text), "```yaml\n")
		for more {
			var block string
			block, rest, _ = strings.Cut(rest, "```")
			if strings.HasPrefix(block, "version:") && !strings.Contains(block, "\ntests:") { // engine/expect looks at those
				shown++
				if _, problems := config.Parse(name, []byte(block), nil); problems.Err() != nil {
					t.Errorf("%s shows a configuration with problems:\n%v\nin\n%s", name, problems, block)
				}
			}
			_, rest, more = strings.Cut(rest, "```yaml\n")
		}
	})
	if shown == 0 {
		t.Error("no page shows a configuration: the search is broken")
	}
}

// TestDocumentsShowCompiledGo: each Go block of a page is a piece of an example that is compiled and tested.
func TestDocumentsShowCompiledGo(t *testing.T) {
	t.Parallel()
	var examples []string
	var blocks []struct{ page, text string }
	everyFile(t, func(name string, text []byte) {
		switch {
		case strings.HasPrefix(name, "docs/examples/") && strings.HasSuffix(name, ".go"):
			examples = append(examples, flat(string(text)))
		case strings.HasSuffix(name, ".md"):
			_, rest, more := strings.Cut(string(text), "```go\n")
			for more {
				var block string
				block, rest, _ = strings.Cut(rest, "```")
				blocks = append(blocks, struct{ page, text string }{name, block})
				_, rest, more = strings.Cut(rest, "```go\n")
			}
		}
	})
	if len(blocks) == 0 || len(examples) == 0 {
		t.Fatalf("found %d Go blocks and %d examples: the search is broken", len(blocks), len(examples))
	}
	for _, b := range blocks {
		if !slices.ContainsFunc(examples, func(example string) bool { return strings.Contains(example, flat(b.text)) }) {
			t.Errorf("%s shows Go that is no piece of a file in docs/examples:\n%s", b.page, b.text)
		}
	}
}

// flat is a text without its indentation.
func flat(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}

func firstLineOf(text []byte) string {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return string(line)
}
