// SPDX-License-Identifier: Apache-2.0

// Package report owns how problems are shown: as text with the lines that they are about, and as the formats
// that programs read (JSON, SARIF, GitHub's workflow commands, GitLab's code quality).
//
//	Report --Render(format)--> bytes
//
// It is pure: it reads no file, no environment and no clock, and the same report gives the same bytes. It
// decides nothing about a file, not even whether a run was refused: who checked says so.
//
// A line of a configuration may hold a password. So no line is shown as it stands: a value is hidden unless
// its key is known to hold no secret (File.Shown), every comment is cut off, and what stands between :// and @
// is hidden wherever it is. See mask.go.
package report

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"example.com/bothy/engine/problem"
)

// Format is a way to write a report.
type Format string

// The formats.
const (
	Text   Format = "text"   // for people
	JSON   Format = "json"   // an object of a documented, stable shape
	SARIF  Format = "sarif"  // SARIF 2.1.0, for code scanning
	GitHub Format = "github" // workflow commands of GitHub Actions, which become annotations
	GitLab Format = "gitlab" // a code quality report of GitLab
)

// Formats lists the formats in the order in which help names them.
func Formats() []Format { return []Format{Text, JSON, SARIF, GitHub, GitLab} }

// Report is what one run looked at and found.
type Report struct {
	Files    []File // what was looked at, in the order in which it was named
	Tables   *Tables
	Problems problem.List
	Kinds    []problem.Kind // the rules of the program; SARIF lists them
	Version  string         // of the program; SARIF names it
	Refused  bool           // the run ends with an exit code that is not 0
	Colour   bool           // of the text, which is for a terminal then
}

// File is one file that was looked at.
type File struct {
	Name string // as the positions of problems have it; "-" is standard input
	// Path is its place below the root of the repository, with slashes, or an absolute path outside of it. It is
	// what other programs find the file by. Empty: the name.
	Path string
	// Text is shown around the places of problems. Without it none is shown.
	Text []byte
	// Shown says whether the value of a key can hold no secret, so that it may be printed. Without it no value
	// is shown.
	Shown func(key string) bool
	// Consumers counts the declared consumers; less than 0 where they could not be read, or the file has none.
	Consumers int
}

// Tables is what a run found in the tables.
type Tables struct {
	Names        []string
	Paths, Cases int
}

// Render writes a report. A format that is none of Formats is written as Text.
func Render(r Report, f Format) []byte {
	r.Problems = slices.Clone(r.Problems)
	r.Problems.Sort()
	d := newDesk(r)
	switch f {
	case JSON:
		return d.json()
	case SARIF:
		return d.sarif()
	case GitHub:
		return d.github()
	case GitLab:
		return d.gitlab()
	case Text:
	}
	return d.text()
}

// desk is a report with its files at hand.
type desk struct {
	Report
	sources map[string]*source
}

func newDesk(r Report) *desk {
	d := &desk{Report: r, sources: map[string]*source{}}
	for _, f := range r.Files {
		if d.sources[f.Name] == nil {
			d.sources[f.Name] = &source{File: f}
		}
	}
	return d
}

// source is the file of a name; a problem may be about one that was not looked at.
func (d *desk) source(name string) *source {
	if d.sources[name] == nil {
		d.sources[name] = &source{File: File{Name: name, Consumers: -1}}
	}
	return d.sources[name]
}

// path is where other programs find a file.
func (d *desk) path(name string) string {
	path := d.source(name).Path
	if path == "" {
		path = name
	}
	if path == "-" {
		return "stdin"
	}
	return path
}

// tally counts errors, warnings and the files that they are in.
func tally(problems problem.List) (errors, warnings, files int) {
	in := map[string]bool{}
	for _, p := range problems {
		in[p.At.File] = true
		if p.Severity == problem.Warning {
			warnings += 1 + p.More
		} else {
			errors += 1 + p.More
		}
	}
	return errors, warnings, len(in)
}

// counted says how many there are of a thing, in words.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// Summary is the last line of a text, such as 2 errors, 1 warning in 1 file. It is empty without problems.
func Summary(problems problem.List) string {
	errors, warnings, files := tally(problems)
	var parts []string
	if errors > 0 {
		parts = append(parts, counted(errors, "error"))
	}
	if warnings > 0 {
		parts = append(parts, counted(warnings, "warning"))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ", ") + " in " + counted(files, "file")
}

// severityName is a severity in words.
func severityName(s problem.Severity) string {
	if s == problem.Warning {
		return "warning"
	}
	return "error"
}

// encode is JSON as people like to read it: indented, and without escapes for a browser.
func encode(value any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(value) // the values are plain structs of this package, and a buffer takes everything
	return b.Bytes()
}
