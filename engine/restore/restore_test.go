// SPDX-License-Identifier: Apache-2.0

package restore_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/restore"
	"example.com/bothy/engine/round"
)

// consumers is the table of consumers with these positions.
func consumers(positions ...restore.Position) restore.Cursor {
	c := restore.Cursor{Table: "event_consumer_cursors", Column: "last_seq", Rows: int64(len(positions)), Named: positions}
	for _, p := range positions {
		if c.Lowest == nil || p.Seq < *c.Lowest {
			c.Lowest = new(p.Seq)
		}
		if c.Top == nil || p.Seq > *c.Top {
			c.Top = new(p.Seq)
		}
	}
	return c
}

// sound is a database in which everything fits together.
func sound() restore.State {
	return restore.State{
		Stored: round.Identity{System: 7, Timeline: 1}, Current: round.Identity{System: 7, Timeline: 1}, Environment: "production",
		Epoch: "01890000-0000-7000-8000-000000000001", Counter: new(int64(10)), Highest: 10, HeadEvent: "01890000-0000-7000-8000-00000000000a",
		Cursors: []restore.Cursor{consumers(restore.Position{Name: "push", Seq: 4})}, Audit: restore.Audit{Seq: 3, Hash: []byte{1, 2}},
	}
}

func TestFlaws(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*restore.State)
		want   []restore.Flaw
		head   int64
	}{
		"nothing":               {func(*restore.State) {}, nil, 10},
		"counter behind":        {func(s *restore.State) { s.Counter = new(int64(7)) }, []restore.Flaw{{Kind: restore.CounterBehind, Range: restore.Range{First: 8, Last: 10}}}, 10},
		"counter missing":       {func(s *restore.State) { s.Counter = nil }, []restore.Flaw{{Kind: restore.CounterMissing, Range: restore.Range{First: 10, Last: 10}}}, 10},
		"a hole up to the head": {func(s *restore.State) { s.Highest = 6 }, []restore.Flaw{{Kind: restore.CounterAhead, Range: restore.Range{First: 7, Last: 10}}}, 10},
		"a hole that all have passed": {func(s *restore.State) {
			s.Highest, s.Cursors[0] = 6, consumers(restore.Position{Name: "push", Seq: 10})
		}, nil, 10},
		"nobody reads": {func(s *restore.State) { s.Highest, s.Cursors[0] = 6, consumers() }, nil, 10},
		"a cursor ahead": {
			func(s *restore.State) {
				s.Cursors[0] = consumers(restore.Position{Name: "push", Seq: 4}, restore.Position{Name: "sync", Seq: 12})
			},
			[]restore.Flaw{{Kind: restore.CursorAhead, Range: restore.Range{First: 11, Last: 12}, Table: "event_consumer_cursors", Name: "sync"}},
			10,
		},
		"a cursor of the user's ahead": {
			func(s *restore.State) {
				s.Cursors = append(s.Cursors, restore.Cursor{Table: "shop.positions", Rows: 2, Lowest: new(int64(1)), Top: new(int64(99))})
			},
			[]restore.Flaw{{Kind: restore.CursorAhead, Range: restore.Range{First: 11, Last: 99}, Table: "shop.positions"}},
			10,
		},
		"an empty log without a counter": {
			func(s *restore.State) { s.Counter, s.Highest = nil, 0 }, []restore.Flaw{{Kind: restore.CounterMissing, Range: restore.Range{First: 4, Last: 4}}}, 4,
		},
	} {
		s := sound()
		tt.change(&s)
		if diff := cmp.Diff(tt.want, s.Flaws()); diff != "" || s.Head() != tt.head {
			t.Errorf("%s: head %d, want %d; flaws (-want +got):\n%s", name, s.Head(), tt.head, diff)
		}
		for _, flaw := range s.Flaws() {
			if text := flaw.String(); text == string(flaw.Kind) || text == "" {
				t.Errorf("%s: the flaw has no words: %q", name, text)
			}
		}
	}
}

func TestMoveOf(t *testing.T) {
	t.Parallel()
	c := consumers(restore.Position{Name: "a", Seq: 4}, restore.Position{Name: "b", Seq: 10}, restore.Position{Name: "c", Seq: 12})
	c.Behind, c.Ahead = 1, 1
	want := restore.Moved{
		Table: "event_consumer_cursors", Column: "last_seq", Rows: 2, To: 10, Behind: 1, Ahead: 1, Passed: &restore.Range{First: 5, Last: 10},
		Named: []restore.Named{{Name: "a", From: 4, To: 10, Events: 6}, {Name: "c", From: 12, To: 10}},
	}
	if diff := cmp.Diff(want, restore.MoveOf(c, 10)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r, ok := sound().Abandoned(); !ok || r != (restore.Range{First: 5, Last: 10}) || r.Count() != 6 {
		t.Errorf("abandoned: got %v, %v, want 5 to 10", r, ok)
	}
}

// A manifest reads what it writes, and nothing that could be taken for something else.
func TestManifest(t *testing.T) {
	t.Parallel()
	m := restore.ManifestOf(sound(), time.Date(2030, 1, 2, 3, 4, 5, 6789, time.FixedZone("", 3600)))
	text, err := m.Text()
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "manifest_version": 1,
  "taken_at": "2030-01-02T02:04:05.000006Z",
  "environment": "production",
  "system_identifier": "7",
  "timeline_id": 1,
  "sync_epoch": "01890000-0000-7000-8000-000000000001",
  "head_seq": 10,
  "head_event": "01890000-0000-7000-8000-00000000000a",
  "audit_seq": 3,
  "audit_hash": "0102"
}
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, err := restore.ParseManifest(text)
	if diff := cmp.Diff(m, got); err != nil || diff != "" {
		t.Errorf("read again: %v (-want +got):\n%s", err, diff)
	}
	if got.Identity() != sound().Current {
		t.Errorf("identity: got %v", got.Identity())
	}
	with := func(old, text string) string { return strings.Replace(want, old, text, 1) }
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":             {"", "is no JSON object"},
		"a list":              {"[]", "is no JSON object"},
		"cut off":             {want[:100], "cut off or damaged"},
		"something after it":  {want + "{}", "followed by something else"},
		"a key twice":         {with(`"head_seq": 10`, `"head_seq": 10, "head_seq": 9`), `has the key "head_seq" twice`},
		"a key in capitals":   {with(`"head_seq"`, `"Head_Seq"`), `lacks the key "head_seq"`},
		"a key too many":      {with(`"head_seq": 10`, `"head_seq": 10, "more": 1`), `has the key "more"`},
		"a key too few":       {with(`  "audit_seq": 3,`+"\n", ""), `lacks the key "audit_seq"`},
		"a null":              {with(`"head_seq": 10`, `"head_seq": null`), `"head_seq" of the manifest is null`},
		"another version":     {with(`"manifest_version": 1`, `"manifest_version": 2`), "has version 2"},
		"a text for a number": {with(`"head_seq": 10`, `"head_seq": "10"`), "not one that `engine restore manifest` wrote"},
		"a fraction":          {with(`"head_seq": 10`, `"head_seq": 10.5`), "not one that `engine restore manifest` wrote"},
		"below zero":          {with(`"audit_seq": 3`, `"audit_seq": -3`), "below 0"},
		"no epoch":            {with(`"01890000-0000-7000-8000-000000000001"`, `""`), "sync_epoch of the manifest is empty"},
		"a hash that is none": {with(`"0102"`, `"xyz"`), "not hexadecimal"},
		"too large":           {strings.Repeat(" ", restore.MaxManifest+1), "larger than"},
	} {
		if _, err := restore.ParseManifest([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
}

func TestManifestDifferences(t *testing.T) {
	t.Parallel()
	m := restore.ManifestOf(sound(), time.Now())
	if d := m.Differences(sound()); len(d) > 0 {
		t.Errorf("the database of the manifest: got %v, want no difference", d)
	}
	for field, change := range map[string]func(*restore.State){
		"sync_epoch":        func(s *restore.State) { s.Epoch = "01890000-0000-7000-8000-000000000002" },
		"head_seq":          func(s *restore.State) { s.Counter, s.Highest = new(int64(9)), 9 },
		"head_event":        func(s *restore.State) { s.HeadEvent = "01890000-0000-7000-8000-00000000000b" },
		"audit_seq":         func(s *restore.State) { s.Audit.Seq = 4 },
		"audit_hash":        func(s *restore.State) { s.Audit.Hash = nil },
		"environment":       func(s *restore.State) { s.Environment = "" },
		"system_identifier": func(s *restore.State) { s.Stored.System = 8 },
	} {
		s := sound()
		change(&s)
		d := m.Differences(s)
		if len(d) != 1 || d[0].Field != field || !strings.Contains(d[0].String(), field+" is ") {
			t.Errorf("%s: got %v, want this difference alone", field, d)
		}
	}
	s := sound()
	s.Counter = new(int64(8))
	if d := m.Differences(s); !slices.ContainsFunc(d, func(d restore.Difference) bool { return d.Field == string(restore.CounterBehind) }) {
		t.Errorf("a counter behind its log: got %v, want it told although the head fits", d)
	}
}

// FuzzParseManifest: whatever is given, what is accepted is written again as the same.
func FuzzParseManifest(f *testing.F) {
	text, err := restore.ManifestOf(sound(), time.Unix(0, 0)).Text()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"manifest_version":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := restore.ParseManifest(text)
		if err != nil {
			return
		}
		again, err := m.Text()
		if err != nil {
			t.Fatal(err)
		}
		second, err := restore.ParseManifest(again)
		if err != nil || !second.TakenAt.Equal(m.TakenAt) || second.HeadSeq != m.HeadSeq || second.AuditHash != m.AuditHash {
			t.Errorf("%q: got %+v, %v, want %+v", text, second, err, m)
		}
	})
}
