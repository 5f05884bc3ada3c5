// SPDX-License-Identifier: Apache-2.0

package diagram

import (
	"cmp"
	"slices"

	"example.com/bothy/engine/machine"
)

// run is one upright piece of a line: in which channel it runs, and between which heights.
type run struct {
	channel  int
	from, to int
	arrow    *arrow
	shared   *box // the target of a lane: its last upright piece serves every line to it
	x        int
}

// route finds the way of every arrow. Which upright pieces there are is known first, since the width of a
// channel depends on how many it holds, and then the x of everything.
func (l *layout) route(t *machine.Table) {
	runs := make([][]*run, l.columns)
	last := make(map[*box]*run)
	first := make(map[*arrow]*run)
	add := func(source *box, n int, a machine.Arrow, broken bool) {
		to := l.target(a)
		made := &arrow{to: to, broken: broken, points: []point{source.port(n)}}
		l.arrows = append(l.arrows, made)
		y := to.in().y
		column := l.columnOf[source]
		if l.hidden(source, to) {
			y = l.lanes[to]
			if last[to] == nil {
				r := &run{channel: l.columnOf[to] - 1, from: y, to: to.in().y, shared: to}
				last[to] = r
				runs[r.channel] = append(runs[r.channel], r)
			}
		}
		r := &run{channel: column, from: source.port(n).y, to: y, arrow: made}
		first[made] = r
		runs[column] = append(runs[column], r)
	}
	for _, s := range t.States {
		for n, a := range s.Answers {
			add(l.states[s.Name.Text], n, a, false)
		}
	}
	for n, a := range t.Anywhere {
		add(l.any, n, a, true)
	}
	l.widths(runs)
	for _, a := range l.arrows {
		r, in := first[a], a.to.in()
		a.points = append([]point{{l.right(r.channel), r.from}}, point{r.x, r.from}, point{r.x, r.to})
		if r.to != in.y { // on a lane
			end := last[a.to]
			a.points = append(a.points, point{end.x, r.to}, point{end.x, in.y})
		}
		a.points = append(a.points, in)
	}
}

// widths gives every column, channel and upright piece its x.
func (l *layout) widths(runs [][]*run) {
	x := margin + startGap
	wide := make([]int, l.columns+1)
	for _, b := range l.boxes {
		wide[l.columnOf[b]] = max(wide[l.columnOf[b]], b.w)
	}
	for column := range wide {
		for _, b := range l.boxes {
			if l.columnOf[b] == column {
				b.x, b.w = x, wide[column] // boxes of one column are equally wide, so that lines begin on one edge
			}
		}
		x += wide[column]
		if column == l.columns {
			break
		}
		slices.SortStableFunc(runs[column], order)
		for _, r := range runs[column] {
			x += track
			r.x = x
		}
		x += 2 * track
	}
}

// order sorts the upright pieces of a channel from left to right so that few lines cross: those that go up, the
// highest first; those that go down, the lowest first; the ends of lanes last.
func order(a, b *run) int {
	rank := func(r *run) int {
		switch {
		case r.shared != nil:
			return 2
		case r.to > r.from:
			return 1
		default:
			return 0
		}
	}
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	if rank(a) == 1 {
		return cmp.Compare(b.from, a.from)
	}
	return cmp.Compare(a.from, b.from)
}

// right is the right border of a column's boxes.
func (l *layout) right(column int) int {
	for _, b := range l.boxes {
		if l.columnOf[b] == column {
			return b.right()
		}
	}
	return 0
}

// frame sizes the canvas around everything.
func (l *layout) frame() {
	for _, b := range l.boxes {
		l.width = max(l.width, b.right()+margin)
		l.height = max(l.height, b.bottom()+margin)
	}
	l.height += legend
}
