// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/problem"
)

// kinds are those of every room that reports problems. A room adds a line.
func kinds() []problem.Kind {
	all := slices.Concat(
		config.Kinds(),
	)
	slices.SortFunc(all, func(a, b problem.Kind) int { return cmp.Compare(a.Code, b.Code) })
	return slices.CompactFunc(all, func(a, b problem.Kind) bool { return a == b })
}

// example is a case of a code: a folder testdata/CODE or testdata/CODE.more of a room, with the file and in
// want.txt what is said about it. A case that is no file (a path that leads nowhere) says in case.txt what
// it is.
type example struct {
	name, file, want string
}

// problems is the page that explains every code.
func problems(root string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`# Problems

<!-- Written by ` + "`go generate ./...`" + ` from the kinds and the case files of the rooms. Do not edit it. -->

What the engine says about a file that a person wrote, by code. An **error** stops ` + "`engine validate`" + ` and every start; a
**warning** is reported and nothing else, unless ` + "`--strict`" + ` is given. Each example is the smallest case of the code in the
tests, with everything that is said about it.
`)
	for _, kind := range kinds() {
		found, err := smallest(root, kind.Code)
		if err != nil {
			return nil, err
		}
		severity := "Error"
		if kind.Severity == problem.Warning {
			severity = "Warning"
		}
		fmt.Fprintf(&b, "\n## %s\n\n**%s.** %s\n\n", kind.Code, severity, kind.Means)
		if found.name == "case.txt" {
			b.WriteString(found.file)
		} else {
			// "wrong" tells a test that checks every configuration of the pages to leave it alone.
			fmt.Fprintf(&b, "```%s wrong\n%s```\n", strings.TrimPrefix(filepath.Ext(found.name), "."), visible(found.file))
		}
		fmt.Fprintf(&b, "\n```text\n%s```\n", visible(found.want))
	}
	return b.Bytes(), nil
}

// smallest finds the shortest case of a code whose output speaks of it.
func smallest(root, code string) (example, error) {
	outputs, err := filepath.Glob(filepath.Join(root, "*", "*", "testdata", code+"*", "want.txt"))
	if err != nil {
		return example{}, err
	}
	var found []example
	for _, output := range outputs {
		folder := filepath.Dir(output)
		if name, _, _ := strings.Cut(filepath.Base(folder), "."); name != code {
			continue
		}
		one, err := read(folder)
		if err != nil {
			return example{}, err
		}
		if strings.Contains(one.want, "["+code+"]") {
			found = append(found, one)
		}
	}
	if len(found) == 0 {
		return example{}, fmt.Errorf("the code %s has no case: add a folder testdata/%s with a file and a want.txt to the room that reports it", code, code)
	}
	return slices.MinFunc(found, func(a, b example) int { return cmp.Compare(len(a.file), len(b.file)) }), nil
}

// read reads a case: want.txt, and the one other file beside it.
func read(folder string) (example, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return example{}, err
	}
	var one example
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return example{}, err
		}
		switch {
		case entry.Name() == "want.txt":
			one.want = string(text)
		case one.name != "":
			return example{}, fmt.Errorf("%s holds %s and %s: a case is one file and its want.txt", folder, one.name, entry.Name())
		default:
			one.name, one.file = entry.Name(), string(text)
		}
	}
	return one, nil
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
