// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
)

var (
	githubMessage  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// github writes one workflow command per problem. Standard input has no file to annotate: the place stands in the
// message then.
func (d *desk) github() []byte {
	var b strings.Builder
	for _, p := range d.Problems {
		message := p.What
		place := ""
		if p.At.File == "-" {
			message = fmt.Sprintf("standard input, line %d, column %d: %s", p.At.Line, p.At.Col, message)
		} else {
			place = fmt.Sprintf("file=%s,line=%d,col=%d,", githubProperty.Replace(d.path(p.At.File)), p.At.Line, p.At.Col)
		}
		if p.Also.Line > 0 {
			message += fmt.Sprintf("\nsee: %s:%d:%d", d.path(p.Also.File), p.Also.Line, p.Also.Col)
		}
		if p.Fix != "" {
			message += "\nfix: " + p.Fix
		}
		fmt.Fprintf(&b, "::%s %stitle=%s::%s\n", severityName(p.Severity), place, githubProperty.Replace(p.Code), githubMessage.Replace(message))
	}
	return []byte(b.String())
}
