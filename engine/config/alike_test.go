// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"example.com/bothy/engine/report"
)

// What is wrong a hundred thousand times is told a thousand times, and counted.
func TestManyAlike(t *testing.T) {
	text := good + "log:\n" + strings.Repeat("  level: info\n", 100_000) + "  leve: info\n"
	_, problems := Parse("consumers.yaml", []byte(text), env)
	if len(problems) > 1010 || !strings.Contains(problems.Error(), `the key "leve" is not known`) {
		t.Errorf("got %d problems, want about a thousand, and the one of another kind", len(problems))
	}
	if got, want := report.Summary(problems), "100000 errors in 1 file"; got != want {
		t.Errorf("summary: got %q, want %q", got, want)
	}
	if want := "98999 more problems of this kind begin here and are not told one by one"; !strings.Contains(problems.Error(), want) {
		t.Errorf("got no %q", want)
	}
}

// A document may say which YAML it is, and end with the mark that begins another one.
func TestDirectivesAndMarks(t *testing.T) {
	for _, text := range []string{
		"%YAML 1.2\n---\n" + good, "# who\n%YAML 1.2 # new\r\n---\n" + good, "%YAML 1.1\n---\n" + good, good + "---\n", good + "---", good + "...\n---\n# nothing\n", good + "---\n---\n",
	} {
		if _, problems := Parse("consumers.yaml", []byte(text), env); len(problems) > 0 {
			t.Errorf("%q: got\n%v\nwant no problem", text, problems)
		}
	}
	for text, code := range map[string]string{
		good + "---\n---\na: 1\n": "second-document", good + "---\n~\n": "second-document", "%YAML 2.0\n---\n" + good: "bad-yaml",
	} {
		if _, problems := Parse("consumers.yaml", []byte(text), env); len(problems) != 1 || problems[0].Code != code {
			t.Errorf("%q: got\n%v\nwant %s", text, problems, code)
		}
	}
}

// Parentheses around a SELECT do not make another one of it.
func TestRepeatsInParentheses(t *testing.T) {
	const a, b = "SELECT seq, 'a' AS recipient FROM batch", "SELECT seq, 'b' AS recipient FROM batch"
	for query, want := range map[string]bool{
		a + " UNION ALL (" + a + ")": true, "(" + a + ") UNION ALL ( (" + a + "))": true, a + " UNION ALL " + a: true,
		a + " UNION ALL (" + b + ")": false, a + " UNION (" + a + ")": false, "(" + a + ") UNION (" + b + ") UNION ALL (" + a + ") UNION (" + a + ")": false,
	} {
		if got := repeats(query); got != want {
			t.Errorf("repeats(%q): got %t, want %t", query, got, want)
		}
	}
}
