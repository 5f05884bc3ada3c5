// SPDX-License-Identifier: Apache-2.0

package diagram

import (
	"cmp"
	"slices"

	"example.com/bothy/engine/machine"
)

// Sizes of the picture, in pixels.
const (
	margin   = 24
	heading  = 44 // of the title above everything
	legend   = 64 // of the explanation below everything
	pad      = 12 // between a box's border and its text
	entry    = 17 // from a box's top to where arrows come in
	lineStep = 17 // from one line of text to the next
	boxGap   = 22 // between two boxes of a column
	track    = 13 // between two upright lines
	startGap = 46 // left of the first box, for the dot of the start
	nameWide = 9  // of one character of a name, at most
	textWide = 8  // of one character of other text, at most
)

type point struct{ x, y int }

// box is a state, an end, or the box that stands for any step.
type box struct {
	x, y, w, h int
	class      string
	name       string
	lines      []string
	ports      []string // answers, each with a place at the right border, below the lines
}

func (b *box) right() int  { return b.x + b.w }
func (b *box) bottom() int { return b.y + b.h }

// port is where the arrow of the n-th answer leaves.
func (b *box) port(n int) point {
	return point{b.right(), b.y + entry + (len(b.lines)+1+n)*lineStep + 4}
}

// in is where arrows come in.
func (b *box) in() point { return point{b.x, b.y + entry} }

// newBox measures a box. Its place comes later.
func newBox(class, name string, lines, ports []string) *box {
	wide := nameWide * cells(name)
	for _, text := range slices.Concat(lines, ports) {
		wide = max(wide, textWide*cells(text))
	}
	b := &box{class: class, name: name, lines: lines, ports: ports, w: wide + 2*pad}
	b.h = entry + (len(lines)+len(ports))*lineStep + pad + 4
	return b
}

// cells is how many characters of the usual width a text takes: those of East Asia are twice as wide.
func cells(text string) int {
	n := 0
	for _, r := range text {
		n++
		if r >= 0x1100 {
			n++
		}
	}
	return n
}

// arrow is one answer as a line.
type arrow struct {
	points []point
	to     *box
	broken bool // of any step: dashed
}

// layout is a picture before it is written.
//
// States stand in columns: each as far right as the longest way to it is long. Ends stand in a last column.
// Between two columns lies a channel, in which upright lines run, each on a track of its own. A line goes from
// its answer into the channel beside it, up or down on its track, and then straight to its target: a lane
// below all states is free for it where a box would be in the way. So no line ever crosses a box.
type layout struct {
	width, height int
	boxes         []*box
	arrows        []*arrow
	start         *box

	states   map[string]*box
	ends     map[string]*box
	columnOf map[*box]int
	rowOf    map[*box]int // of states
	columns  int          // of states; the ends are the column after
	beside   map[*box]int // the row beside which an end stands
	lanes    map[*box]int // y of the lane to a target that cannot be reached straight
	any      *box
}

// arrange makes the layout of a proven table.
func arrange(t *machine.Table) *layout {
	l := &layout{
		states: make(map[string]*box), ends: make(map[string]*box), columnOf: make(map[*box]int),
		rowOf: make(map[*box]int), beside: make(map[*box]int), lanes: make(map[*box]int),
	}
	l.measure(t)
	l.columnsOf(t)
	l.rows(t)
	bottom := l.stack()
	l.placeEnds(t, bottom)
	l.route(t)
	l.frame()
	return l
}

// measure makes every box.
func (l *layout) measure(t *machine.Table) {
	words := func(arrows []machine.Arrow) (answers []string) {
		for _, a := range arrows {
			answers = append(answers, a.Answer.Text)
		}
		return answers
	}
	for _, s := range t.States {
		b := newBox("state", s.Name.Text, append([]string{s.Run.Text}, arguments(s)...), words(s.Answers))
		l.states[s.Name.Text] = b
		l.boxes = append(l.boxes, b)
	}
	for _, row := range t.Ends {
		b := newBox(look(row.End), row.End.Name, says(row.End), nil)
		l.ends[row.End.Name] = b
		l.boxes = append(l.boxes, b)
	}
	l.any = newBox("any", "any step", nil, words(t.Anywhere))
	l.boxes = append(l.boxes, l.any)
	l.start = l.states[t.Start.Text]
}

// target is the box that an arrow leads to.
func (l *layout) target(a machine.Arrow) *box {
	if a.Target.End {
		return l.ends[a.Target.Name]
	}
	return l.states[a.Target.Name]
}

// columnsOf puts each state as far right as the longest way to it is long. Relaxing as often as there are
// states is enough, since a proven table has no cycle.
func (l *layout) columnsOf(t *machine.Table) {
	for range t.States {
		moved := false
		for _, s := range t.States {
			for _, a := range s.Answers {
				from, to := l.states[s.Name.Text], l.target(a)
				if !a.Target.End && l.columnOf[to] <= l.columnOf[from] {
					l.columnOf[to] = l.columnOf[from] + 1
					moved = true
				}
			}
		}
		if !moved {
			break
		}
	}
	for _, b := range l.states {
		l.columns = max(l.columns, l.columnOf[b]+1)
	}
	for _, b := range l.ends {
		l.columnOf[b] = l.columns
	}
}

// rows puts the states of a way into one row as far as it goes, and what branches off below it.
func (l *layout) rows(t *machine.Table) {
	type place struct{ column, row int }
	taken := make(map[place]bool)
	byName := make(map[string]machine.State)
	for _, s := range t.States {
		byName[s.Name.Text] = s
	}
	var visit func(name string, row int)
	visit = func(name string, row int) {
		b := l.states[name]
		if _, placed := l.rowOf[b]; placed {
			return
		}
		for taken[place{l.columnOf[b], row}] {
			row++
		}
		taken[place{l.columnOf[b], row}] = true
		l.rowOf[b] = row
		for _, a := range byName[name].Answers {
			if !a.Target.End {
				visit(a.Target.Name, row)
			}
		}
	}
	visit(t.Start.Text, 0)
}

// stack gives every row its height and every state its y, and gives the lowest border of them all.
func (l *layout) stack() int {
	var heights []int
	for b, row := range l.rowOf {
		for len(heights) <= row {
			heights = append(heights, 0)
		}
		heights[row] = max(heights[row], b.h)
	}
	y := margin + heading
	for row, h := range heights {
		for b, r := range l.rowOf {
			if r == row {
				b.y = y
			}
		}
		y += h + boxGap
	}
	return y
}

// free says that no state stands in the row to the right of the column.
func (l *layout) free(row, column int) bool {
	for b, r := range l.rowOf {
		if r == row && l.columnOf[b] > column {
			return false
		}
	}
	return true
}

// placeEnds puts an end beside the row that leads to it where there is room, and the others below all states:
// those that are reached from further left lie lower, so that few lines cross.
func (l *layout) placeEnds(t *machine.Table, bottom int) {
	taken := make(map[int]bool)
	from := make(map[*box]int) // the column furthest right that leads to the end
	for _, s := range t.States {
		source := l.states[s.Name.Text]
		row, column := l.rowOf[source], l.columnOf[source]
		for _, a := range s.Answers {
			if !a.Target.End {
				continue
			}
			end := l.target(a)
			from[end] = max(from[end], column)
			_, placed := l.beside[end]
			if !placed && !taken[row] && l.free(row, column) && end.h <= l.rowHeight(row) {
				l.beside[end], taken[row] = row, true
				end.y = source.y
			}
		}
	}
	y := l.reserveLanes(t, bottom)
	l.any.y = y
	rest := l.below(t, from)
	for i, end := range rest {
		if i == len(rest)-len(t.Anywhere) {
			l.any.y = y // beside the ends that it leads to
		}
		end.y = y
		y += end.h + boxGap/2
	}
}

// below are the ends that stand below all states, from top to bottom. What follows a step that broke off
// comes last.
func (l *layout) below(t *machine.Table, from map[*box]int) []*box {
	var rest []*box
	for _, row := range t.Ends {
		if _, placed := l.beside[l.ends[row.End.Name]]; !placed {
			rest = append(rest, l.ends[row.End.Name])
		}
	}
	slices.SortStableFunc(rest, func(a, b *box) int { return cmp.Compare(from[b], from[a]) })
	for _, a := range t.Anywhere {
		if i := slices.Index(rest, l.target(a)); i >= 0 {
			rest = append(slices.Delete(rest, i, i+1), l.target(a))
		}
	}
	return rest
}

// rowHeight is the height of the highest state of a row.
func (l *layout) rowHeight(row int) int {
	h := 0
	for b, r := range l.rowOf {
		if r == row {
			h = max(h, b.h)
		}
	}
	return h
}

// reserveLanes gives each target that a box hides from one of its sources a lane below all states, and gives
// the y below the lanes.
func (l *layout) reserveLanes(t *machine.Table, y int) int {
	reserve := func(source *box, arrows []machine.Arrow) {
		for _, a := range arrows {
			to := l.target(a)
			if _, has := l.lanes[to]; !has && l.hidden(source, to) {
				l.lanes[to] = y
				y += track
			}
		}
	}
	for _, s := range t.States {
		reserve(l.states[s.Name.Text], s.Answers)
	}
	reserve(l.any, t.Anywhere)
	return y + boxGap/2
}

// hidden says that a box may stand between the channel beside the source and the target. The box of any step
// stands in the first column.
func (l *layout) hidden(source, to *box) bool {
	column := l.columnOf[source]
	if row, beside := l.beside[to]; beside {
		return !l.free(row, column)
	}
	return l.columnOf[to] != l.columns && l.columnOf[to] > column+1
}
