// SPDX-License-Identifier: Apache-2.0

package report

import "example.com/bothy/engine/problem"

// jsonVersion is raised when a key changes its meaning or goes; new keys leave it as it is.
const jsonVersion = 1

// The shape is documented in docs/ci.md.
type (
	jsonReport struct {
		Version  int           `json:"version"`
		Files    []jsonFile    `json:"files"`
		Tables   *jsonTables   `json:"tables,omitempty"`
		Problems []jsonProblem `json:"problems"`
		Summary  jsonSummary   `json:"summary"`
	}
	jsonFile struct {
		File      string `json:"file"`
		Path      string `json:"path"`
		Consumers *int   `json:"consumers,omitempty"`
		Errors    int    `json:"errors"`
		Warnings  int    `json:"warnings"`
	}
	jsonTables struct {
		Names []string `json:"names"`
		Paths int      `json:"paths"`
		Cases int      `json:"cases"`
	}
	jsonProblem struct {
		File      string     `json:"file"`
		Line      int        `json:"line"`
		Column    int        `json:"column"`
		EndColumn int        `json:"endColumn,omitempty"`
		Severity  string     `json:"severity"`
		Code      string     `json:"code"`
		What      string     `json:"what"`
		Fix       string     `json:"fix,omitempty"`
		Also      *jsonPlace `json:"also,omitempty"`
	}
	jsonPlace struct {
		File   string `json:"file"`
		Line   int    `json:"line"`
		Column int    `json:"column"`
	}
	jsonSummary struct {
		Errors   int  `json:"errors"`
		Warnings int  `json:"warnings"`
		Files    int  `json:"files"`
		Refused  bool `json:"refused"`
	}
)

func (d *desk) json() []byte {
	out := jsonReport{Version: jsonVersion, Files: []jsonFile{}, Problems: []jsonProblem{}}
	for _, f := range d.Files {
		file := jsonFile{File: f.Name, Path: d.path(f.Name)}
		if f.Consumers >= 0 {
			file.Consumers = &f.Consumers
		}
		for _, p := range d.Problems {
			switch {
			case p.At.File != f.Name:
			case p.Severity == problem.Warning:
				file.Warnings++
			default:
				file.Errors++
			}
		}
		out.Files = append(out.Files, file)
	}
	if d.Tables != nil {
		out.Tables = &jsonTables{append([]string{}, d.Tables.Names...), d.Tables.Paths, d.Tables.Cases}
	}
	for _, p := range d.Problems {
		found := jsonProblem{
			File: p.At.File, Line: p.At.Line, Column: p.At.Col, EndColumn: d.source(p.At.File).end(p.At.Line, p.At.Col),
			Severity: severityName(p.Severity), Code: p.Code, What: p.What, Fix: p.Fix,
		}
		if p.Also.Line > 0 {
			found.Also = &jsonPlace{p.Also.File, p.Also.Line, p.Also.Col}
		}
		out.Problems = append(out.Problems, found)
	}
	out.Summary.Errors, out.Summary.Warnings, out.Summary.Files = tally(d.Problems)
	out.Summary.Refused = d.Refused
	return encode(out)
}
