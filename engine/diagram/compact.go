// SPDX-License-Identifier: Apache-2.0

package diagram

import (
	"fmt"
	"slices"
	"strings"

	"example.com/bothy/engine/machine"
)

// Small is a picture of a table with names only, for a page that has styles of its own and shows a machine for
// each of many things. It has no style, no id and no colour:
//
//	g.state[data-state]               a state
//	g.end.commit|rollback|failure     an end: data-end is its name, data-path the states of every way to it
//	g.any                             what may happen to any step
//	path[data-from][data-to]          an arrow between states; `end NAME` is an end, and `any step` what may happen to any
//
// so that the page can mark the way that was taken.
type Small struct {
	Wide string // the states from left to right
	Tall string // the same from top to bottom
}

// Compact draws a machine small.
func Compact(m *machine.Machine) Small {
	c := &compact{table: m.Table(), at: map[string]cell{}, taken: map[cell]bool{}}
	c.states()
	c.ends()
	return Small{Wide: c.draw(false), Tall: c.draw(true)}
}

// cell is a place: how far along the way, and in which lane beside it.
type cell struct{ step, lane int }

// anyNode is the node of what may happen to any step. No name of a table has a blank.
const anyNode = "any step"

// endNode is the node of an end, which may be called like a state.
func endNode(end string) string { return "end " + end }

// target is the node that an arrow leads to.
func target(a machine.Arrow) string {
	if a.Target.End {
		return endNode(a.Target.Name)
	}
	return a.Target.Name
}

// compact is the layout of a small picture.
type compact struct {
	table *machine.Table
	at    map[string]cell // by node
	taken map[cell]bool
	hangs []string // the ends that stand beside their source, not after it
}

func (c *compact) place(name string, where cell) {
	c.at[name] = where
	c.taken[where] = true
}

// states puts each state as far along as the longest way to it is long, and in the lane of what leads to it when
// that is free.
func (c *compact) states() {
	depth := map[string]int{}
	for range c.table.States { // often enough, since a proven table has no cycle
		for _, s := range c.table.States {
			for _, a := range s.Answers {
				if !a.Target.End {
					depth[a.Target.Name] = max(depth[a.Target.Name], depth[s.Name.Text]+1)
				}
			}
		}
	}
	var visit func(name string, lane int)
	visit = func(name string, lane int) {
		if _, placed := c.at[name]; placed {
			return
		}
		where := c.free(cell{depth[name], lane})
		c.place(name, where)
		for _, s := range c.table.States {
			if s.Name.Text != name {
				continue
			}
			for _, a := range s.Answers {
				if !a.Target.End {
					visit(a.Target.Name, where.lane)
				}
			}
		}
	}
	visit(c.table.Start.Text, 0)
}

// free is the first lane from a place on that nothing stands in.
func (c *compact) free(from cell) cell {
	for c.taken[from] {
		from.lane++
	}
	return from
}

// ends puts an end after a state that leads nowhere else, and else beside the last state that leads to it. What may
// happen to any step stands apart, at the end of the way.
func (c *compact) ends() {
	last := 0
	for _, where := range c.at {
		last = max(last, where.step)
	}
	for _, row := range c.table.Ends {
		source, only, leads := c.source(row.End.Name)
		switch {
		case c.anywhere(row.End.Name) || !leads:
		case only:
			where := c.at[source]
			where.step++
			c.place(endNode(row.End.Name), c.free(where))
		default:
			c.place(endNode(row.End.Name), c.free(c.at[source]))
			c.hangs = append(c.hangs, endNode(row.End.Name))
		}
	}
	where := cell{last, 0}
	for !c.room(where) {
		where.lane++
	}
	c.place(anyNode, where)
	for _, row := range c.table.Ends {
		if c.anywhere(row.End.Name) {
			c.place(endNode(row.End.Name), c.free(cell{last + 1, where.lane}))
		}
	}
}

// room reports whether nothing stands at a place, and after it from there on.
func (c *compact) room(where cell) bool {
	for other := range c.taken {
		if other == where || other.step > where.step && other.lane >= where.lane {
			return false
		}
	}
	return true
}

func (c *compact) anywhere(end string) bool {
	return slices.ContainsFunc(c.table.Anywhere, func(a machine.Arrow) bool { return a.Target.Name == end })
}

// source is the state farthest along that leads to an end, and whether it leads to no state.
func (c *compact) source(end string) (name string, only, leads bool) {
	for _, s := range c.table.States {
		to := slices.ContainsFunc(s.Answers, func(a machine.Arrow) bool { return a.Target.End && a.Target.Name == end })
		if to && (!leads || c.at[s.Name.Text].step > c.at[name].step) {
			name, leads = s.Name.Text, true
			only = !slices.ContainsFunc(s.Answers, func(a machine.Arrow) bool { return !a.Target.End })
		}
	}
	return name, only, leads
}

// certain are the states of every way to an end, in the order of the way.
func (c *compact) certain(end string) []string {
	if c.anywhere(end) {
		return nil
	}
	var names []string
	for _, s := range c.table.States {
		if !c.avoids(end, s.Name.Text) {
			names = append(names, s.Name.Text)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return c.at[a].step - c.at[b].step })
	return names
}

// avoids reports whether a way leads to an end without a state.
func (c *compact) avoids(end, without string) bool {
	reached := map[string]bool{c.table.Start.Text: without != c.table.Start.Text}
	found := false
	for range c.table.States {
		for _, s := range c.table.States {
			if !reached[s.Name.Text] {
				continue
			}
			for _, a := range s.Answers {
				if a.Target.End {
					found = found || a.Target.Name == end
				} else if a.Target.Name != without {
					reached[a.Target.Name] = true
				}
			}
		}
	}
	return found
}

// label is what stands in a node. A sign says what the colour of an end says.
func (c *compact) label(node string) string {
	for _, row := range c.table.Ends {
		if endNode(row.End.Name) != node {
			continue
		}
		switch look(row.End) {
		case "commit":
			return "\u2713 " + row.End.Name
		case "failure":
			return "! " + row.End.Name
		default:
			return row.End.Name
		}
	}
	return node
}

// describe says an end in words.
func describe(e machine.End) string { return e.Name + ": " + strings.Join(says(e), ", ") }

// attribute is a list of names as the value of an attribute.
func attribute(names []string) string { return fmt.Sprintf("%q", escape(strings.Join(names, " "))) }
