// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"encoding/xml"
	"io"
	"strconv"
	"strings"
	"time"
)

// The JUnit XML that CI systems read. There is no standard: these are the names that they agree on.
type (
	junitRoot struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		File     string      `xml:"file,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string     `xml:"name,attr"`
		Class   string     `xml:"classname,attr"`
		Time    string     `xml:"time,attr"`
		File    string     `xml:"file,attr"`
		Line    int        `xml:"line,attr"`
		Failure *junitText `xml:"failure,omitempty"`
		Error   *junitText `xml:"error,omitempty"`
	}
	junitText struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes reports as JUnit XML: a suite for each file, a case for each test. A file that has problems
// is one case with an error for each.
func WriteJUnit(to io.Writer, reports []Report) error {
	root := junitRoot{Name: "engine test"}
	var total time.Duration
	for _, r := range reports {
		suite, took := r.suite()
		total += took
		root.Tests += suite.Tests
		root.Failures += suite.Failures
		root.Errors += suite.Errors
		root.Suites = append(root.Suites, suite)
	}
	root.Time = seconds(total)
	text, err := xml.MarshalIndent(root, "", "  ")
	if err != nil {
		return err
	}
	_, err = io.WriteString(to, xml.Header+string(text)+"\n")
	return err
}

func (r Report) suite() (suite junitSuite, took time.Duration) {
	suite = junitSuite{Name: r.File, File: r.File}
	for _, p := range r.Problems {
		suite.Errors++
		suite.Cases = append(suite.Cases, junitCase{
			Name: p.Code, Class: r.File, Time: seconds(0), File: p.At.File, Line: p.At.Line,
			Error: &junitText{p.What, p.Code, p.String()},
		})
	}
	for _, result := range r.Results {
		took += result.Took
		c := junitCase{Name: result.Name, Class: r.File, Time: seconds(result.Took), File: result.Test.File, Line: result.Test.Line}
		text := &junitText{result.What, "", strings.Join(append([]string{result.At.String() + ": " + result.What}, result.Details...), "\n")}
		switch result.Verdict {
		case Failed:
			text.Type = "failed"
			c.Failure = text
			suite.Failures++
		case Broken:
			text.Type = "broken"
			if r.Err != nil {
				text.Text += "\n" + r.Err.Error()
			}
			c.Error = text
			suite.Errors++
		case Passed:
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Tests, suite.Time = len(suite.Cases), seconds(took)
	return suite, took
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
