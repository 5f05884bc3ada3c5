// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"context"
	"os"
	"strings"
	"testing"

	"example.com/bothy/engine/config"
)

// What the page shows is a test file of the shipped configuration, and says what the command would.
func TestPageShowsWhatWorks(t *testing.T) {
	t.Parallel()
	cfg, problems := config.Load("../../consumers.yaml", nil)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	s := Subject{Config: cfg, Consumers: cfg.Rounds(), Handlers: []string{"mentions"}}
	page, err := os.ReadFile("../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n# consumers.test.yaml\n")
	text, rest, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("the page shows no test file: the search is broken")
	}
	file, problems := Parse(Name, []byte("# consumers.test.yaml\n"+text), s)
	if len(problems) > 0 {
		t.Fatalf("%v\nin\n%s", problems, text)
	}
	report := file.Run(t.Context(), everything, func(context.Context) (Stage, error) { return scripted{}, nil })
	said := Summary([]Report{report}) + "\n" + Cover(s, []*File{file}).String() + "\n"
	if !strings.Contains(rest, "$ engine test\n"+said+"```") {
		t.Errorf("the page does not show what is said about its test file:\n%s", said)
	}
	file, problems = Parse(Name, []byte("# consumers.test.yaml\n"+strings.Replace(text, "queue: notify", "queue: mail", 1)), s)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var b strings.Builder
	report = file.Run(t.Context(), everything, func(context.Context) (Stage, error) { return scripted{}, nil })
	report.Write(&b, false)
	if !strings.Contains(rest, "```text\n"+b.String()) {
		t.Errorf("the page does not show what is said about its test file with another queue:\n%s", b.String())
	}
}
