// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/bothy/definitions"
)

// TestBrokenRounds makes round.yaml unsafe in ways in which a person might, and compares everything that is
// said about it. A folder holds the edit (the lines that go and the lines that come in their place, below the
// reason) and the whole output.
func TestBrokenRounds(t *testing.T) {
	edits, err := filepath.Glob("testdata/broken/*/edit.txt")
	if err != nil || len(edits) == 0 {
		t.Fatalf("no edits: %v", err)
	}
	for _, path := range edits {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			edit, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			m, problems := Load("round.yaml", []byte(applied(t, string(edit))), roundVocabulary())
			if m != nil || (!hasCode(problems, "broken-promise") && !hasCode(problems, "missing-promise") && !hasCode(problems, "bad-anywhere") && !hasCode(problems, "unknown-end")) {
				t.Errorf("got machine %v and problems\n%v\nwant no machine and a problem about what is promised", m != nil, problems)
			}
			placed(t, problems)
			golden(t, filepath.Join(dir, "want.txt"), problems.Error()+"\n")
		})
	}
}

// applied is round.yaml with the lines of an edit that begin with - replaced by those that begin with + below
// them.
func applied(t *testing.T, edit string) string {
	t.Helper()
	_, round := definitions.Round()
	text := string(round)
	var old string
	var fresh strings.Builder
	change := func() {
		if old == "" {
			return
		}
		if strings.Count(text, old) != 1 {
			t.Fatalf("round.yaml has %d times, want once:\n%s", strings.Count(text, old), old)
		}
		text = strings.Replace(text, old, fresh.String(), 1)
		old = ""
		fresh.Reset()
	}
	for line := range strings.Lines(edit) {
		switch line[0] {
		case '-':
			change()
			old = line[1:]
		case '+':
			fresh.WriteString(line[1:])
		}
	}
	change()
	return text
}
