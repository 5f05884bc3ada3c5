// SPDX-License-Identifier: Apache-2.0

package report

import "example.com/bothy/engine/problem"

type (
	gitlabIssue struct {
		Description string         `json:"description"`
		CheckName   string         `json:"check_name"`
		Fingerprint string         `json:"fingerprint"`
		Severity    string         `json:"severity"`
		Location    gitlabLocation `json:"location"`
	}
	gitlabLocation struct {
		Path  string      `json:"path"`
		Lines gitlabLines `json:"lines"`
	}
	gitlabLines struct {
		Begin int `json:"begin"`
	}
)

// gitlab writes the list that GitLab compares with the one of the target branch.
func (d *desk) gitlab() []byte {
	issues := []gitlabIssue{}
	prints := d.fingerprints()
	for i, p := range d.Problems {
		severity := "critical"
		if p.Severity == problem.Warning {
			severity = "minor"
		}
		description := p.What
		if p.Fix != "" {
			description += "; fix: " + p.Fix
		}
		issues = append(issues, gitlabIssue{
			Description: plain(description, false), CheckName: p.Code, Fingerprint: prints[i], Severity: severity,
			Location: gitlabLocation{d.path(p.At.File), gitlabLines{p.At.Line}},
		})
	}
	return encode(issues)
}
