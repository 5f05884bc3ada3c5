// SPDX-License-Identifier: Apache-2.0

package diagram

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"example.com/bothy/engine/machine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the golden files of this package anew")

// shop is a vocabulary with a step of each shape: many answers, one answer, arguments.
func shop() machine.Vocabulary {
	return machine.Vocabulary{
		Machine: "shop",
		Steps: map[string]machine.StepKind{
			"ask":  {Answers: []machine.Answer{{Name: "yes"}, {Name: "no"}, {Name: "perhaps"}}},
			"look": {Answers: []machine.Answer{{Name: "seen"}, {Name: "unseen"}}},
			"move": {Answers: []machine.Answer{{Name: "done"}}, With: map[string]machine.ArgumentKind{"what": {List: true}, "end": {}}},
		},
		Failures: []string{"broken"},
	}
}

// load makes a machine of a table that has to be sound.
func load(t testing.TB, text string) *machine.Machine {
	t.Helper()
	m, problems := machine.Load("shop.yaml", []byte(text), shop())
	if m == nil {
		t.Fatalf("the table has problems:\n%v\n%s", problems, text)
	}
	return m
}

// awkward has names and arguments that a format could take for its own words.
const awkward = `machine: shop
start: subgraph
steps:
  subgraph: {run: ask, answers: {yes: graph, no: any, perhaps: end end_}}
  graph: {run: move, with: {what: ["<b>&\"quoted\"</b>", 'back\slash', "two\nlines ]]> --> x"], end: "#35; é 日本 0123456789 0123456789 0123456789"}, answers: {done: any}}
  any: {run: look, answers: {seen: end style, unseen: end end_}}
anywhere: {cancelled: end left, error: end broken}
ends:
  style: {transaction: commit, next: again_when_full, log: {level: warn, message: somebody looked}}
  end_: {transaction: rollback, next: wait}
  left: {transaction: rollback, next: stop, edge: unchanged}
  broken: {transaction: rollback, next: wait, failure: broken}
`

// TestDraw compares whole pictures.
func TestDraw(t *testing.T) {
	for _, f := range Formats() {
		got, err := Draw(load(t, awkward), f)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "awkward."+string(f))
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v\nwrite it with: go test ./engine/diagram -update", err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is not what came out (-want +got):\n%s\nwhen the new one is right: go test ./engine/diagram -update", path, diff)
		}
	}
	if _, err := Draw(load(t, awkward), "png"); err == nil {
		t.Error("format png: got no error, want one")
	}
}

// TestPictureHoldsTogether looks at the layout of many tables: nothing lies over anything else.
func TestPictureHoldsTogether(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 9)) // the same tables in every run
	for range 400 {
		text := randomTable(random)
		m := load(t, text)
		sound(t, arrange(m.Table()), text)
		wellFormed(t, svg(m))
	}
	sound(t, arrange(load(t, awkward).Table()), awkward)
}

// randomTable is a table in which each state leads only to later ones and to ends, and everything is reached.
func randomTable(random *rand.Rand) string {
	n := 1 + random.IntN(12)
	steps := []string{"ask", "look", "move"}
	lines := make([][]string, n)
	step := make([]string, n)
	for i := range n {
		step[i] = steps[random.IntN(3)]
		if i == n-1 {
			step[i] = "ask"
		}
	}
	ends := []string{"end sold", "end kept", "end broken"}
	free := 0 // states that nothing leads to yet wait for the next answer
	for i := range n {
		for _, answer := range shop().Steps[step[i]].Answers {
			target := ends[random.IntN(3)]
			if free = max(free, i); free < n-1 {
				free++
				target = fmt.Sprintf("s%d", free)
				if i+1 < free && random.IntN(3) == 0 && answer.Name != "yes" && answer.Name != "seen" && answer.Name != "done" {
					free--
					target = fmt.Sprintf("s%d", i+1+random.IntN(free-i))
				}
			}
			if i == n-1 && answer.Name != "perhaps" {
				target = map[string]string{"yes": "end sold", "no": "end kept"}[answer.Name]
			}
			lines[i] = append(lines[i], answer.Name+": "+target)
		}
	}
	var b strings.Builder
	b.WriteString("machine: shop\nstart: s0\nsteps:\n")
	for i := range n {
		fmt.Fprintf(&b, "  s%d: {run: %s, answers: {%s}}\n", i, step[i], strings.Join(lines[i], ", "))
	}
	b.WriteString(`anywhere: {cancelled: end left, error: end broken}
ends:
  sold: {transaction: commit, next: again_when_full, log: {level: info, message: sold}}
  kept: {transaction: rollback, next: wait}
  left: {transaction: rollback, next: stop, edge: unchanged}
  broken: {transaction: rollback, next: wait, failure: broken}
`)
	return b.String()
}

// sound wants no two boxes to overlap, no line to cross a box or to lie on a line to another target, and
// everything to be on the canvas.
func sound(t *testing.T, l *layout, text string) {
	t.Helper()
	for i, a := range l.boxes {
		if a.x < 0 || a.y < 0 || a.right() > l.width || a.bottom() > l.height-legend {
			t.Fatalf("box %s is outside the canvas, in\n%s", a.name, text)
		}
		for _, words := range slices.Concat([]string{a.name}, a.lines, a.ports) {
			if textWide*cells(words)+2*pad > a.w {
				t.Fatalf("box %s is too narrow for %q", a.name, words)
			}
		}
		for _, b := range l.boxes[i+1:] {
			if a.x < b.right() && b.x < a.right() && a.y < b.bottom() && b.y < a.bottom() {
				t.Fatalf("boxes %s and %s overlap, in\n%s", a.name, b.name, text)
			}
		}
	}
	for i, a := range l.arrows {
		if last := a.points[len(a.points)-1]; last != a.to.in() {
			t.Fatalf("a line ends at %v and not at box %s, in\n%s", last, a.to.name, text)
		}
		for n := range len(a.points) - 1 {
			p, q := a.points[n], a.points[n+1]
			if p.x != q.x && p.y != q.y {
				t.Fatalf("a line to %s is neither level nor upright, in\n%s", a.to.name, text)
			}
			for _, b := range l.boxes {
				if within(p, q, b) {
					t.Fatalf("the line to %s from %v to %v crosses box %s, in\n%s", a.to.name, p, q, b.name, text)
				}
			}
			for _, other := range l.arrows[i+1:] {
				if other.to != a.to && together(p, q, other.points) {
					t.Fatalf("lines to %s and %s lie on each other, in\n%s", a.to.name, other.to.name, text)
				}
			}
		}
	}
}

// within says that a piece of a line comes inside a box; touching its border is what lines do.
func within(p, q point, b *box) bool {
	left, right := min(p.x, q.x), max(p.x, q.x)
	top, bottom := min(p.y, q.y), max(p.y, q.y)
	return left < b.right() && right > b.x && top < b.bottom() && bottom > b.y
}

// together says that a piece of a line lies on another line for more than a point.
func together(p, q point, points []point) bool {
	for n := range len(points) - 1 {
		r, s := points[n], points[n+1]
		switch {
		case p.y == q.y && r.y == s.y && p.y == r.y && max(min(p.x, q.x), min(r.x, s.x)) < min(max(p.x, q.x), max(r.x, s.x)):
			return true
		case p.x == q.x && r.x == s.x && p.x == r.x && max(min(p.y, q.y), min(r.y, s.y)) < min(max(p.y, q.y), max(r.y, s.y)):
			return true
		}
	}
	return false
}

// wellFormed reads a picture as XML and wants nothing from outside in it.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v\n%s", err, text)
		}
		if start, ok := token.(xml.StartElement); ok {
			if slices.Contains([]string{"image", "script", "use", "foreignObject", "a"}, start.Name.Local) {
				t.Fatalf("the picture has the element %s", start.Name.Local)
			}
			for _, a := range start.Attr {
				if a.Name.Local == "href" || strings.Contains(a.Value, "url(") {
					t.Fatalf("the picture takes something from outside: %s=%q", a.Name.Local, a.Value)
				}
			}
		}
	}
}

// TestSameTwice: maps are walked on the way, and none of that may show.
func TestSameTwice(t *testing.T) {
	for _, f := range Formats() {
		first, err := Draw(load(t, awkward), f)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if again, err := Draw(load(t, awkward), f); err != nil || !bytes.Equal(first, again) {
				t.Fatalf("%s: two pictures of one table differ (%v)", f, err)
			}
		}
	}
}
