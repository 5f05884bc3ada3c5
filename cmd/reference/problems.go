// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.com/bothy/engine"
	"example.com/bothy/engine/problem"
)

// example is a case of a code: its files, and what is said about them. Most rooms keep a folder
// testdata/CODE or testdata/CODE.more with the files and a want.txt; one whose cases are single files keeps
// each beside a FILE.want. A case that is no file (a path that leads nowhere) says in case.txt what it is.
type example struct {
	files []exampleFile
	want  string
}

type exampleFile struct{ name, text string }

// size is what a reader has to take in.
func (e example) size() int {
	n := len(e.want)
	for _, f := range e.files {
		n += len(f.text)
	}
	return n
}

// mostLines is how much of a file is shown.
const mostLines = 40

// problems is the page that explains every code.
func problems(root string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`# Problems

<!-- Written by ` + "`go generate ./...`" + ` from the kinds and the case files of the rooms. Do not edit it. -->

What the engine says about a file that a person wrote, by code. An **error** stops ` + "`engine validate`" + ` and every start; a
**warning** is reported and nothing else, unless ` + "`--strict`" + ` is given. Each example is the smallest case of the code in the
tests, with everything that is said about it.
`)
	all, err := cases(root)
	if err != nil {
		return nil, err
	}
	for _, kind := range engine.Kinds() {
		found, err := smallest(all, kind.Code)
		if err != nil {
			return nil, err
		}
		if found.want == "" && !needsServer(kind.Code) {
			return nil, fmt.Errorf("the code %s has no case: add a folder testdata/%s with a file and a want.txt to the room that reports it", kind.Code, kind.Code)
		}
		severity := "Error"
		if kind.Severity == problem.Warning {
			severity = "Warning"
		}
		fmt.Fprintf(&b, "\n## %s\n\n**%s.** %s\n", kind.Code, severity, kind.Means)
		if found.want == "" {
			continue
		}
		b.WriteByte('\n')
		for i, f := range found.files {
			switch {
			case f.name == "case.txt":
				b.WriteString(f.text)
				continue
			case i > 0:
				fmt.Fprintf(&b, "\n`%s`:\n\n", f.name)
			}
			// "wrong" tells a test that checks every configuration of the pages to leave it alone.
			fmt.Fprintf(&b, "```%s wrong\n%s```\n", strings.TrimPrefix(filepath.Ext(f.name), "."), visible(begin(f.text)))
		}
		fmt.Fprintf(&b, "\n```text\n%s```\n", visible(found.want))
	}
	return b.Bytes(), nil
}

// needsServer reports whether a code is about a server of another kind than the tests run on: such a code has
// no example.
func needsServer(code string) bool {
	return slices.ContainsFunc(engine.DatabaseKinds(), func(k problem.Kind) bool { return k.Code == code })
}

// cases are the outputs of every case under root, by path.
func cases(root string) (map[string]string, error) {
	outputs, err := glob(filepath.Join(root, "engine", "*", "testdata"), filepath.Join(root, "engine", "testdata"))
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(outputs))
	for _, output := range outputs {
		want, err := os.ReadFile(output)
		if err != nil {
			return nil, err
		}
		all[output] = string(want)
	}
	return all, nil
}

// smallest finds the shortest case of a code whose output speaks of it, or none.
func smallest(all map[string]string, code string) (example, error) {
	var found []example
	for _, output := range slices.Sorted(maps.Keys(all)) {
		name, _, _ := strings.Cut(filepath.Base(filepath.Dir(output)), ".")
		if filepath.Base(output) == "want.txt" && name != code || !strings.Contains(all[output], "["+code+"]") {
			continue
		}
		one, err := read(output, all[output])
		if err != nil {
			return example{}, err
		}
		found = append(found, one)
	}
	if len(found) == 0 {
		return example{}, nil
	}
	return slices.MinFunc(found, func(a, b example) int { return cmp.Compare(a.size(), b.size()) }), nil
}

// glob finds the outputs of all cases under folders named testdata.
func glob(folders ...string) ([]string, error) {
	var all []string
	for _, folder := range folders {
		for _, pattern := range []string{"*/want.txt", "*/*/want.txt", "*.want"} {
			some, err := filepath.Glob(filepath.Join(folder, filepath.FromSlash(pattern)))
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	return all, nil
}

// read reads the files of a case.
func read(output, want string) (example, error) {
	if single, ok := strings.CutSuffix(output, ".want"); ok {
		text, err := os.ReadFile(single)
		return example{files: []exampleFile{{filepath.Base(single), string(text)}}, want: want}, err
	}
	folder := filepath.Dir(output)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return example{}, err
	}
	one := example{want: want}
	for _, entry := range entries {
		if entry.Name() == "want.txt" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return example{}, err
		}
		one.files = append(one.files, exampleFile{entry.Name(), string(text)})
	}
	// The file that is spoken of comes first.
	slices.SortStableFunc(one.files, func(a, b exampleFile) int {
		spoken := func(f exampleFile) int { return strings.Index(want+f.name+":", f.name+":") }
		return cmp.Compare(spoken(a), spoken(b))
	})
	return one, nil
}

// begin cuts a text after what fits on a page, in lines and in their length.
func begin(text string) string {
	lines := strings.SplitAfter(text, "\n")
	if len(lines) > mostLines+1 {
		lines = append(lines[:mostLines], "...\n")
	}
	for i, line := range lines {
		const most = 200
		if runes := []rune(line); len(runes) > most {
			lines[i] = string(runes[:most]) + "...\n"
		}
	}
	return strings.Join(lines, "")
}

// visible writes out what cannot be seen, or would break the page.
func visible(text string) string {
	var b strings.Builder
	for i, c := range text {
		switch {
		case c == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd"):
			fmt.Fprintf(&b, `\x%02X`, text[i])
		case c == '\n' || c == ' ' || unicode.IsGraphic(c) && !unicode.IsSpace(c):
			b.WriteRune(c)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\r':
			b.WriteString(`\r`)
		default:
			fmt.Fprintf(&b, `\u%04X`, c)
		}
	}
	if !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	return b.String()
}
