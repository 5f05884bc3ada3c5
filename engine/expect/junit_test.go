// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"bytes"
	"encoding/xml"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/problem"
)

// What a report says is read back from its XML, also what XML cannot hold as it is.
func TestWriteJUnit(t *testing.T) {
	at := func(line int) problem.Position { return problem.Position{File: "a.test.yaml", Line: line, Col: 5} }
	reports := []Report{
		{File: "a.test.yaml", Err: errors.New("no server"), Results: []Result{
			{Name: "fine", Test: at(3), At: at(3), Verdict: Passed, Took: 1500 * time.Millisecond},
			{Name: `<bad> & "quoted" ]]>` + "\x00\x1b", Test: at(9), At: at(12), Verdict: Failed, What: "1 job is not expected", Details: []string{"+ {consumer: <a>}", "+ b"}},
			{Name: "none", Test: at(20), At: at(20), Verdict: Broken, What: "it needs a database, and there is none"},
		}},
		{File: "b.test.yaml", Problems: problem.List{
			{At: problem.Position{File: "b.test.yaml", Line: 7, Col: 1}, Severity: problem.Error, Code: "unknown-key", What: "the key \"x\" is not known here", Fix: "remove it"},
		}},
		{File: "c.test.yaml"},
	}
	var b bytes.Buffer
	if err := WriteJUnit(&b, reports); err != nil {
		t.Fatal(err)
	}
	var got junitRoot
	if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	want := junitRoot{
		XMLName: xml.Name{Local: "testsuites"}, Name: "engine test", Tests: 4, Failures: 1, Errors: 2, Time: "1.500",
		Suites: []junitSuite{
			{Name: "a.test.yaml", Tests: 3, Failures: 1, Errors: 1, Time: "1.500", File: "a.test.yaml", Cases: []junitCase{
				{Name: "fine", Class: "a.test.yaml", Time: "1.500", File: "a.test.yaml", Line: 3},
				{
					Name: `<bad> & "quoted" ]]>` + "\ufffd\ufffd", Class: "a.test.yaml", Time: "0.000", File: "a.test.yaml", Line: 9,
					Failure: &junitText{"1 job is not expected", "failed", "a.test.yaml:12:5: 1 job is not expected\n+ {consumer: <a>}\n+ b"},
				},
				{
					Name: "none", Class: "a.test.yaml", Time: "0.000", File: "a.test.yaml", Line: 20,
					Error: &junitText{"it needs a database, and there is none", "broken", "a.test.yaml:20:5: it needs a database, and there is none\nno server"},
				},
			}},
			{Name: "b.test.yaml", Tests: 1, Errors: 1, Time: "0.000", File: "b.test.yaml", Cases: []junitCase{
				{
					Name: "unknown-key", Class: "b.test.yaml", Time: "0.000", File: "b.test.yaml", Line: 7,
					Error: &junitText{`the key "x" is not known here`, "unknown-key", "b.test.yaml:7:1: the key \"x\" is not known here [unknown-key]\n    fix: remove it"},
				},
			}},
			{Name: "c.test.yaml", Time: "0.000", File: "c.test.yaml"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\nin\n%s", diff, b.String())
	}
	if strings.ContainsAny(b.String(), "\x00\x1b") {
		t.Error("the XML holds characters that no XML may hold")
	}
}
