// SPDX-License-Identifier: Apache-2.0

package diagram

import (
	"encoding/xml"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/machine"
)

// shape is one group of a small picture: a state, an end, or what may happen to any step.
type shape struct {
	Class string `xml:"class,attr"`
	State string `xml:"data-state,attr"`
	End   string `xml:"data-end,attr"`
	Path  string `xml:"data-path,attr"`
	Title string `xml:"title"`
	Rect  struct {
		X int `xml:"x,attr"`
		Y int `xml:"y,attr"`
		W int `xml:"width,attr"`
		H int `xml:"height,attr"`
	} `xml:"rect"`
	Text string `xml:"text"`
}

type smallPicture struct {
	Width  int     `xml:"width,attr"`
	Height int     `xml:"height,attr"`
	Groups []shape `xml:"g"`
	Paths  []struct {
		From string `xml:"data-from,attr"`
		To   string `xml:"data-to,attr"`
	} `xml:"path"`
}

func readSmall(t *testing.T, text string) (p smallPicture) {
	t.Helper()
	if err := xml.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

// TestCompact compares whole pictures.
func TestCompact(t *testing.T) {
	s := Compact(load(t, awkward))
	for name, got := range map[string]string{"awkward.wide.svg": s.Wide, "awkward.tall.svg": s.Tall} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v\nwrite it with: go test ./engine/diagram -update", err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s is not what came out (-want +got):\n%s\nwhen the new one is right: go test ./engine/diagram -update", path, diff)
		}
	}
	if strings.Contains(s.Wide, "style=") || strings.Contains(s.Wide, "<style") || strings.Contains(s.Wide, " id=") {
		t.Errorf("a small picture has a style or an id:\n%s", s.Wide)
	}
}

// TestCompactHoldsTogether looks at many tables: everything is there, inside the picture, and nothing lies over
// anything else.
func TestCompactHoldsTogether(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 8)) // the same tables in every run
	for range 300 {
		text := randomTable(random)
		m := load(t, text)
		s := Compact(m)
		for _, drawn := range []string{s.Wide, s.Tall} {
			holds(t, m, readSmall(t, drawn), text)
		}
	}
}

func holds(t *testing.T, m *machine.Machine, p smallPicture, text string) {
	t.Helper()
	states, ends := map[string]bool{}, map[string]shape{}
	for n, g := range p.Groups {
		states[g.State], ends[g.End] = true, g
		r := g.Rect
		if r.X < 0 || r.Y < 0 || r.X+r.W > p.Width || r.Y+r.H > p.Height {
			t.Errorf("%s sticks out of the picture\n%s", g.Text, text)
		}
		for _, o := range p.Groups[:n] {
			if r.X < o.Rect.X+o.Rect.W && o.Rect.X < r.X+r.W && r.Y < o.Rect.Y+o.Rect.H && o.Rect.Y < r.Y+r.H {
				t.Errorf("%s lies over %s\n%s", g.Text, o.Text, text)
			}
		}
	}
	drawn := map[string]bool{}
	for _, path := range p.Paths {
		drawn[path.From+" "+path.To] = true
	}
	anywhere := map[string]bool{}
	for _, a := range m.Table().Anywhere {
		anywhere[a.Target.Name] = true
		if !drawn[anyNode+" "+target(a)] {
			t.Errorf("no arrow from any step to %s\n%s", a.Target.Name, text)
		}
	}
	for _, s := range m.Table().States {
		if !states[s.Name.Text] {
			t.Errorf("state %s is missing\n%s", s.Name.Text, text)
		}
		for _, a := range s.Answers {
			if !drawn[s.Name.Text+" "+target(a)] && !(a.Target.End && anywhere[a.Target.Name]) {
				t.Errorf("no arrow from %s to %s\n%s", s.Name.Text, a.Target.Name, text)
			}
		}
	}
	for _, row := range m.Table().Ends {
		if _, there := ends[row.End.Name]; !there {
			t.Errorf("end %s is missing\n%s", row.End.Name, text)
		}
	}
	wantCertain(t, m, ends, text)
}

// wantCertain compares the states of every way to an end with those that the paths of the machine have in common.
func wantCertain(t *testing.T, m *machine.Machine, ends map[string]shape, text string) {
	t.Helper()
	common := map[string]map[string]bool{}
	paths, all := m.Paths()
	if !all {
		return
	}
	for _, p := range paths {
		passed := map[string]bool{}
		for _, l := range p.Legs {
			passed[l.Step.State] = true
		}
		if common[p.End.Name] == nil {
			common[p.End.Name] = passed
			continue
		}
		for name := range common[p.End.Name] {
			if !passed[name] {
				delete(common[p.End.Name], name)
			}
		}
	}
	for _, a := range m.Table().Anywhere {
		common[a.Target.Name] = nil // from any step
	}
	for end, states := range common {
		got := map[string]bool{}
		for name := range strings.FieldsSeq(ends[end].Path) {
			got[name] = true
		}
		if fmt.Sprint(got) != fmt.Sprint(states) {
			t.Errorf("the ways to %s have %v in common, the picture says %v\n%s", end, states, got, text)
		}
	}
}

// A state and an end may have one name.
func TestCompactOfOneName(t *testing.T) {
	m := load(t, `machine: shop
start: sold
steps:
  sold: {run: look, answers: {seen: end sold, unseen: end kept}}
anywhere: {cancelled: end left, error: end broken}
ends:
  sold: {transaction: commit, next: again_when_full}
  kept: {transaction: rollback, next: wait}
  left: {transaction: rollback, next: stop, edge: unchanged}
  broken: {transaction: rollback, next: wait, failure: broken}
`)
	holds(t, m, readSmall(t, Compact(m).Wide), "sold")
}
