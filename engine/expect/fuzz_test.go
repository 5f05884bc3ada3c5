// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/bothy/engine/round"
)

// quietStage answers nothing, whatever it is asked.
type quietStage struct{}

func (quietStage) Setup(_ context.Context, sql string) error {
	return &RefusedError{Row: -1, Event: -1, At: len(sql) / 2, What: "no"}
}

func (quietStage) Rehearse(_ context.Context, _ []Row, _ []round.Event, consumers []string) ([]Answer, error) {
	return make([]Answer, len(consumers)), nil
}

// FuzzParse: no text makes the reader or a run panic, or gives a place outside the file.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*/" + Name)
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "../../consumers.test.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	s := subject(f)
	nothing := func(string) ([]byte, error) { return nil, errors.New("no file") }
	f.Fuzz(func(t *testing.T, text []byte) {
		file, problems := parse(Name, text, s, nothing)
		if (file == nil) != (problems.Errors() > 0) {
			t.Fatalf("%q: no file %v with %d errors", text, file == nil, problems.Errors())
		}
		lines := strings.Count(strings.ReplaceAll(string(text), "\r", "\n"), "\n") + 2
		for _, p := range problems {
			if p.At.Line < 1 || p.At.Col < 1 || p.At.Line > lines || p.Code == "" || p.What == "" {
				t.Fatalf("%q: a bad problem: %v", text, p)
			}
		}
		if file == nil {
			return
		}
		report := file.Run(t.Context(), everything, func(context.Context) (Stage, error) { return quietStage{}, nil })
		for _, r := range report.Results {
			if r.At.Line < 1 || r.At.Line > lines || r.Verdict == 0 || (r.Verdict == Passed) != (r.What == "") {
				t.Fatalf("%q: a bad result: %+v", text, r)
			}
		}
		report.Write(io.Discard, true)
		if err := WriteJUnit(io.Discard, []Report{report}); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
