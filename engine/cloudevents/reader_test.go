// SPDX-License-Identifier: Apache-2.0

package cloudevents_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/cloudevents"
	"example.com/bothy/engine/problem"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// minimal is the shortest event, with room for more attributes.
func minimal(more string) string {
	return `{"specversion":"1.0","id":"1","source":"order","type":"order.placed"` + more + `}`
}

// all reads everything and gives the events and the problems, in the order of the input.
func all(t testing.TB, in io.Reader) ([]cloudevents.Event, problem.List, *cloudevents.Reader) {
	t.Helper()
	r := cloudevents.NewReader("events.jsonl", in)
	var events []cloudevents.Event
	var problems problem.List
	for {
		e, err := r.Next()
		var list problem.List
		switch {
		case errors.Is(err, io.EOF):
			return events, problems, r
		case errors.As(err, &list):
			problems = append(problems, list...)
		case err != nil:
			t.Fatalf("Next: got %v, want an event, a problem or io.EOF", err)
		default:
			events = append(events, e)
		}
	}
}

func TestMapping(t *testing.T) {
	t.Parallel()
	in := `{"specversion":"1.0","id":"6F9619FF-8B86-D011-B42D-00CF4FC964FF","source":"order","type":"order.placed",` +
		`"subject":"ord-1001","time":"2026-03-01T09:30:00.5+01:00","datacontenttype":"application/json; charset=utf-8",` +
		`"audience":"alex, sam","traceparent":"00-1","sampledrate":7,"data":{"total": 12345678901234567890.10, "n": 1e3}}` + "\n" +
		minimal(`,"audience":["robin","a\u00e9"],"data":"only text","dataschema":"https://example.com/s"`) + "\r\n" +
		"\n   \n" +
		minimal(`,"data_base64":"aGVsbG8\/","datacontenttype":"image/png","subject":null,"audience":"","traceparent":"x"`) + "\n" +
		minimal(`,"data":null,"time":"2026-03-01t09:30:00z","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`) + "\n" +
		minimal(`,"traceparent":"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`) + "\n" +
		minimal(`,"traceparent":"00-00000000000000000000000000000000-00f067aa0ba902b7-01"`) + "\n" +
		minimal(`,"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"`) + "\n" +
		minimal(`,"traceparent":7`)
	events, problems, r := all(t, strings.NewReader(in))
	if len(problems) > 0 {
		t.Fatalf("problems:\n%v\nwant none", problems)
	}
	const derived = "5134f0ea-8205-50e5-8429-4125729ccce5"
	base := cloudevents.Event{ID: derived, Type: "order.placed", Resource: "order", Payload: json.RawMessage(`{}`), Col: 1}
	want := []cloudevents.Event{base, base, base, base, base, base, base, base}
	want[0].ID, want[0].ResourceID, want[0].Audience = "6f9619ff-8b86-d011-b42d-00cf4fc964ff", "ord-1001", []string{"alex", "sam"}
	want[0].Payload = json.RawMessage(`{"total": 12345678901234567890.10, "n": 1e3}`)
	want[0].Time = time.Date(2026, 3, 1, 8, 30, 0, 5e8, time.UTC)
	want[1].Audience, want[1].Payload = []string{"robin", "aé"}, json.RawMessage(`"only text"`)
	want[2].Payload = json.RawMessage(`{"data_base64": "aGVsbG8/"}`)
	want[3].Time = time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)
	want[3].Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for i, line := range []int{1, 2, 5, 6, 7, 8, 9, 10} {
		want[i].Line = line
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events of\n%s\n(-want +got):\n%s", in, diff)
	}
	wantUnmapped := map[string]int{"traceparent": 6, "sampledrate": 1, "dataschema": 1, "datacontenttype": 1}
	if diff := cmp.Diff(wantUnmapped, r.Unmapped()); diff != "" {
		t.Errorf("Unmapped (-want +got):\n%s", diff)
	}
}

// The pair of source and id identifies an event: each half changes the UUID, and it never changes in time.
func TestDerivedID(t *testing.T) {
	t.Parallel()
	ids := map[string]string{}
	for _, pair := range [][2]string{{"a", "b"}, {"ab", "b"}, {"a", "bb"}, {"b", "a"}, {"a", "6f9619ff8b86d011b42d00cf4fc964ff"}, {"a", "{6f9619ff-8b86-d011-b42d-00cf4fc964ff}"}} {
		in := fmt.Sprintf(`{"specversion":"1.0","source":%q,"id":%q,"type":"t"}`, pair[0], pair[1])
		events, problems, _ := all(t, strings.NewReader(in+"\n"+in))
		if len(problems) > 0 || len(events) != 2 {
			t.Fatalf("%s: got %d events, %v", in, len(events), problems)
		}
		if events[0].ID != events[1].ID {
			t.Errorf("%s: got ids %s and %s, want the same twice", in, events[0].ID, events[1].ID)
		}
		if other, twice := ids[events[0].ID]; twice {
			t.Errorf("%s and %s: got the same id %s", in, other, events[0].ID)
		}
		ids[events[0].ID] = in
	}
}

// The same events in every way to write a file.
func TestShapes(t *testing.T) {
	t.Parallel()
	one, two := minimal(`,"data":{"n":"}]"}`), minimal(`,"data":["\"{",[]]`)
	tests := map[string]struct {
		in    string
		count int
	}{
		"lines":                       {one + "\n" + two + "\n", 2},
		"no line feed at the end":     {one + "\n" + two, 2},
		"CRLF":                        {one + "\r\n" + two + "\r\n", 2},
		"BOM":                         {"\uFEFF" + one + "\n" + two, 2},
		"blank lines":                 {"\n\n  \t\n" + one + "\n\n\n" + two + "\n \n", 2},
		"array":                       {"[" + one + "," + two + "]", 2},
		"array, indented":             {"\uFEFF \n[\n  " + strings.ReplaceAll(one, ",", ",\r\n    ") + "\n  ,\n" + two + "\n]\n\n", 2},
		"empty array":                 {" [ ] ", 0},
		"empty":                       {"", 0},
		"blank":                       {" \n\n\t", 0},
		"nothing but BOM":             {"\uFEFF", 0},
		"one event as indented lines": {"[" + strings.ReplaceAll(one, ",", "\n,") + "]", 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, in := range map[string]io.Reader{
				"whole": strings.NewReader(test.in), "byte by byte": iotest.OneByteReader(strings.NewReader(test.in)),
				"with the error": iotest.DataErrReader(strings.NewReader(test.in)),
			} {
				events, problems, _ := all(t, in)
				if len(events) != test.count || len(problems) > 0 {
					t.Errorf("%q, read %s: got %d events and problems\n%v\nwant %d and none", test.in, kind, len(events), problems, test.count)
				}
			}
		})
	}
}

// Every .json and .jsonl file of testdata is one input; the problems that it gives stand beside it.
func TestProblems(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata: got %d files, %v", len(files), err)
	}
	for _, file := range files {
		if ext := filepath.Ext(file); ext != ".json" && ext != ".jsonl" {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			in, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			events, problems, _ := all(t, bytes.NewReader(in))
			got := fmt.Sprintf("%d events\n%v\n", len(events), problems)
			for _, p := range problems {
				if p.At.Line < 1 || p.At.Col < 1 || strings.HasSuffix(p.What, ".") || p.Code == "" {
					t.Errorf("%s: got the problem %+v, want a position, a code and no full stop", file, p)
				}
			}
			golden := file + ".want"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v; go test ./engine/cloudevents -update writes it", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

func TestFailingInput(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk went away")
	for _, start := range []string{"", "[", "[" + minimal(""), minimal("")[:20], "[" + minimal("") + ","} {
		r := cloudevents.NewReader("events.jsonl", io.MultiReader(strings.NewReader(start), iotest.ErrReader(broken)))
		var err error
		for err == nil {
			_, err = r.Next()
		}
		_, again := r.Next()
		if !errors.Is(err, broken) || !errors.Is(again, broken) || !strings.Contains(err.Error(), "read events.jsonl: ") {
			t.Errorf("input %q, then a failure: got %v, then %v, want the failure twice, with the name of the file", start, err, again)
		}
	}
}

// A payload of 30 MB passes, in both shapes, and takes memory in proportion.
func TestLargePayload(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 30<<20)
	for _, in := range []string{minimal(`,"data":"`+text+`"`) + "\n" + minimal(""), "[" + minimal(`,"data":"`+text+`"`) + "," + minimal("") + "]"} {
		events, problems, _ := all(t, strings.NewReader(in))
		if len(events) != 2 || len(problems) > 0 {
			t.Fatalf("30 MB: got %d events, %v", len(events), problems)
		}
		if got, want := len(events[0].Payload), len(text)+2; got != want {
			t.Errorf("payload: got %d bytes, want %d", got, want)
		}
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 1<<20)
	pieces := []io.Reader{strings.NewReader(minimal("")), strings.NewReader(minimal(`,"data":"`))}
	for range cloudevents.MaxEventBytes >> 20 {
		pieces = append(pieces, strings.NewReader(text))
	}
	pieces[0] = strings.NewReader(minimal("") + "\n")
	events, problems, _ := all(t, io.MultiReader(pieces...))
	if len(events) != 1 || len(problems) != 1 || problems[0].Code != "too-large" || problems[0].At.Line != 2 || problems[0].At.Col != 1 {
		t.Errorf("a line that never ends: got %d events, %v, want one event and too-large at 2:1", len(events), problems)
	}
}

// Costs that do not depend on the machine: an event costs its strings and little else.
func TestAllocations(t *testing.T) {
	line := sampleLine(1) + "\n"
	const count = 1000
	in := strings.Repeat(line, count)
	got := testing.AllocsPerRun(5, func() {
		r := cloudevents.NewReader("events.jsonl", strings.NewReader(in))
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
	})
	if perEvent := got / count; perEvent > 14 {
		t.Errorf("%.1f allocations per event of %s, want at most 14", perEvent, line)
	}
}

func sampleLine(i int) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"evt-%d","source":"order","type":"order.placed","subject":"ord-%d",`+
		`"time":"2026-03-01T09:30:00Z","datacontenttype":"application/json","audience":"alex,sam","data":{"total":%d,"items":["a","b","c"]}}`, i, i, i)
}

func BenchmarkRead(b *testing.B) {
	var buf bytes.Buffer
	for i := range 1000 {
		buf.WriteString(sampleLine(i) + "\n")
	}
	for name, in := range map[string][]byte{
		"lines": buf.Bytes(),
		"array": []byte("[" + strings.ReplaceAll(strings.TrimSpace(buf.String()), "\n", ",\n") + "]"),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				if events, problems, _ := all(b, bytes.NewReader(in)); len(events) != 1000 {
					b.Fatalf("got %d events, %v", len(events), problems)
				}
			}
		})
	}
}
