// SPDX-License-Identifier: Apache-2.0

package diagram

import (
	"fmt"
	"slices"
	"strings"

	"example.com/bothy/engine/machine"
)

// The measures of a small picture, in pixels for letters of 11.
const (
	smallLetter = 7  // one letter of a label is at most as wide
	smallPad    = 14 // left and right of a label together
	smallHigh   = 22
	smallGap    = 16 // between nodes along the way
	smallBeside = 10 // between lanes
	smallIndent = 12 // of an end that stands beside its source
	smallSpine  = 6  // from the edge of a state to the line that its ends hang on
	smallEdge   = 3
)

// strip is one column or row of cells: where it begins and how much it takes.
type strip struct{ from, size int }

// canvas is a layout in pixels. Along is the direction of the way, across that of the lanes.
type canvas struct {
	*compact

	tall  bool
	steps []strip
	lanes []strip
	b     strings.Builder
}

// draw draws the layout in one direction.
func (c *compact) draw(tall bool) string {
	v := &canvas{compact: c, tall: tall}
	v.measure()
	along, across := v.steps[len(v.steps)-1], v.lanes[len(v.lanes)-1]
	w, h := along.from+along.size+smallEdge, across.from+across.size+smallEdge
	if tall {
		w, h = h, w
	}
	fmt.Fprintf(&v.b, "<svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n", w, h, w, h)
	v.arrows()
	for _, s := range c.table.States {
		v.node(s.Name.Text, fmt.Sprintf(`class="state" data-state=%q`, s.Name.Text), s.Name.Text+": "+s.Run.Text)
	}
	v.node(anyNode, `class="any"`, "what may happen to any step")
	for _, row := range c.table.Ends {
		if _, placed := c.at[endNode(row.End.Name)]; placed {
			v.node(endNode(row.End.Name), fmt.Sprintf(`class="end %s" data-end=%q data-path=%s`, look(row.End), row.End.Name, attribute(c.certain(row.End.Name))), describe(row.End))
		}
	}
	v.b.WriteString("</svg>\n")
	return v.b.String()
}

// wide is how much room the label of a node takes.
func (v *canvas) wide(name string) int {
	return smallLetter*len([]rune(v.label(name))) + smallPad
}

// size is how much room a node takes along and across.
func (v *canvas) size(name string) (along, across int) {
	if v.tall {
		return smallHigh, v.wide(name)
	}
	return v.wide(name), smallHigh
}

func (v *canvas) indent(name string) int {
	if slices.Contains(v.hangs, name) {
		return smallIndent
	}
	return 0
}

// measure gives every column and lane the room that its widest node needs.
func (v *canvas) measure() {
	for name, where := range v.at {
		for len(v.steps) <= where.step {
			v.steps = append(v.steps, strip{})
		}
		for len(v.lanes) <= where.lane {
			v.lanes = append(v.lanes, strip{})
		}
		along, across := v.size(name)
		v.steps[where.step].size = max(v.steps[where.step].size, along+v.indent(name))
		v.lanes[where.lane].size = max(v.lanes[where.lane].size, across)
	}
	put := func(strips []strip, gap int) {
		at := smallEdge
		for n := range strips {
			strips[n].from = at
			at += strips[n].size + gap
		}
	}
	put(v.steps, smallGap)
	put(v.lanes, smallBeside)
}

// area is where a node stands.
type area struct{ along, across, long, broad int }

func (v *canvas) area(name string) area {
	where := v.at[name]
	long, broad := v.size(name)
	return area{v.steps[where.step].from + v.indent(name), v.lanes[where.lane].from, long, broad}
}

// enters is where the arrows of the way meet a node, seen across.
func (v *canvas) enters(a area) int {
	if v.tall {
		return a.across + smallEdge + smallHigh/2
	}
	return a.across + a.broad/2
}

func (v *canvas) node(name, attributes, title string) {
	a := v.area(name)
	x, y, w, h := a.along, a.across, a.long, a.broad
	if v.tall {
		x, y, w, h = y, x, h, w
	}
	round := 4
	if strings.HasPrefix(attributes, `class="end`) {
		round = smallHigh / 2
	}
	fmt.Fprintf(&v.b, "<g %s><title>%s</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"%d\"/><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text></g>\n",
		attributes, escape(title), x, y, w, h, round, x+w/2, y+h/2+4, escape(v.label(name)))
}

// arrows draws every line once, however many answers lead the same way.
func (v *canvas) arrows() {
	drawn := map[[2]string]bool{}
	draw := func(from string, a machine.Arrow) {
		to := target(a)
		_, placed := v.at[to]
		if drawn[[2]string{from, to}] || !placed || from != anyNode && a.Target.End && v.anywhere(a.Target.Name) {
			return // what may happen to any step is drawn once for all of them
		}
		drawn[[2]string{from, to}] = true
		v.arrow(from, to)
	}
	for _, s := range v.table.States {
		for _, a := range s.Answers {
			draw(s.Name.Text, a)
		}
	}
	for _, a := range v.table.Anywhere {
		draw(anyNode, a)
	}
}

// arrow draws one line: along the lane, to another lane in the gap between two steps, or down to an end that
// hangs beside.
func (v *canvas) arrow(from, to string) {
	a, b := v.area(from), v.area(to)
	var way []point // x is along, y is across
	switch start, end := v.at[from], v.at[to]; {
	case start.step == end.step: // beside its source
		spine := a.along + smallSpine
		way = []point{{spine, a.across + a.broad}, {spine, v.enters(b)}, {b.along, v.enters(b)}}
	case start.lane == end.lane:
		way = []point{{a.along + a.long, v.enters(a)}, {b.along, v.enters(b)}}
	case slices.Contains(v.hangs, to): // of another state: between the lanes
		between := b.across - smallBeside/2
		leaves, arrives := a.along+a.long-smallSpine, b.along+b.long/2
		way = []point{{leaves, a.across + a.broad}, {leaves, between}, {arrives, between}, {arrives, b.across}}
	default:
		between := b.along - smallGap/2
		way = []point{{a.along + a.long, v.enters(a)}, {between, v.enters(a)}, {between, v.enters(b)}, {b.along, v.enters(b)}}
	}
	words := make([]string, len(way))
	for n, p := range way {
		if v.tall {
			p.x, p.y = p.y, p.x
		}
		words[n] = fmt.Sprintf("%d %d", p.x, p.y)
	}
	fmt.Fprintf(&v.b, "<path data-from=%q data-to=%q d=\"M%s\"/>\n", from, to, strings.Join(words, "L"))
}
