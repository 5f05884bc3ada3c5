// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"example.com/bothy/engine/problem"
)

const (
	sarifSchema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
	// sarifRoot is the name that code scanning services resolve to the root of the repository.
	sarifRoot = "%SRCROOT%"
)

type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool       `json:"tool"`
		Artifacts  []sarifArtifact `json:"artifacts"`
		ColumnKind string          `json:"columnKind"`
		Results    []sarifResult   `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID            string       `json:"id"`
		Short         sarifText    `json:"shortDescription"`
		Configuration sarifDefault `json:"defaultConfiguration"`
	}
	sarifDefault struct {
		Level string `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifArtifact struct {
		Location sarifFile `json:"location"`
		Roles    []string  `json:"roles"`
	}
	sarifFile struct {
		URI    string `json:"uri"`
		BaseID string `json:"uriBaseId,omitempty"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    *int              `json:"ruleIndex,omitempty"`
		Level        string            `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Related      []sarifLocation   `json:"relatedLocations,omitempty"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		ID       int           `json:"id,omitempty"`
		Message  *sarifText    `json:"message,omitempty"`
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		File   sarifFile   `json:"artifactLocation"`
		Region sarifRegion `json:"region"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
		EndColumn   int `json:"endColumn,omitempty"`
	}
)

func (d *desk) sarif() []byte {
	run := sarifRun{
		Tool:       sarifTool{sarifDriver{Name: "Bothy engine", Version: d.Version, Rules: []sarifRule{}}},
		ColumnKind: "unicodeCodePoints", Artifacts: []sarifArtifact{}, Results: []sarifResult{},
	}
	rules := map[string]int{}
	for _, k := range d.Kinds {
		if _, known := rules[k.Code]; known {
			continue
		}
		rules[k.Code] = len(run.Tool.Driver.Rules)
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{k.Code, sarifText{k.Means}, sarifDefault{severityName(k.Severity)}})
	}
	for _, f := range d.Files {
		run.Artifacts = append(run.Artifacts, sarifArtifact{d.sarifFile(f.Name), []string{"analysisTarget"}})
	}
	prints := d.fingerprints()
	for i, p := range d.Problems {
		result := sarifResult{
			RuleID: p.Code, Level: severityName(p.Severity), Message: sarifText{sarifMessage(p)},
			Locations: []sarifLocation{{Physical: d.sarifPlace(p.At)}}, Fingerprints: map[string]string{"bothyProblem/v1": prints[i]},
		}
		if index, known := rules[p.Code]; known {
			result.RuleIndex = &index
		}
		if p.Also.Line > 0 {
			result.Related = []sarifLocation{{ID: 1, Message: &sarifText{"the other place"}, Physical: d.sarifPlace(p.Also)}}
		}
		run.Results = append(run.Results, result)
	}
	return encode(sarifLog{sarifSchema, "2.1.0", []sarifRun{run}})
}

// sarifMessage is what is wrong and how to mend it. In SARIF, [text](target) is a link: brackets that would be
// read as one are escaped.
func sarifMessage(p problem.Problem) string {
	text := p.What
	if p.Fix != "" {
		text += "\nfix: " + p.Fix
	}
	if strings.Contains(text, "](") {
		text = strings.NewReplacer("[", `\[`, "]", `\]`).Replace(text)
	}
	return text
}

func (d *desk) sarifPlace(at problem.Position) sarifPhysical {
	region := sarifRegion{StartLine: max(at.Line, 1), StartColumn: max(at.Col, 1)}
	region.EndColumn = d.source(at.File).end(region.StartLine, region.StartColumn)
	return sarifPhysical{d.sarifFile(at.File), region}
}

// sarifFile is the address of a file: relative to the root of the repository, or absolute outside of it.
func (d *desk) sarifFile(name string) sarifFile {
	path := d.path(name)
	switch {
	case len(path) > 2 && isLetter(path[0]) && path[1:3] == ":/": // the colon of a drive stays
		return sarifFile{URI: "file:///" + path[:2] + escapePath(path[2:])}
	case strings.HasPrefix(path, "//"): // a share of Windows: //host/share/file
		return sarifFile{URI: "file:" + escapePath(path)}
	case strings.HasPrefix(path, "/"):
		return sarifFile{URI: "file://" + escapePath(path)}
	default:
		return sarifFile{URI: escapePath(path), BaseID: sarifRoot}
	}
}

// escapePath escapes every byte that could mean something in a URI.
func escapePath(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; isLetter(c) || c >= '0' && c <= '9' || strings.IndexByte("-._~/", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
