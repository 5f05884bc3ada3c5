// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"

	"example.com/bothy/engine/problem"
)

// anywhere checks where a step that breaks off leads: to an end, with everything rolled back. An error
// must be told and a cancelled context is no failure, so the two ends are not the same.
func (c *checker) anywhere() {
	for i := range c.t.Anywhere {
		arrow := &c.t.Anywhere[i]
		h, ok := c.resolve(arrow)
		if !ok {
			continue
		}
		if !arrow.Target.End || !h.end {
			if arrow.Target.End == h.end {
				c.report(arrow.Target.At, "bad-anywhere", fmt.Sprintf("%s of anywhere leads to the state %s, and a step that broke off cannot be followed by another", arrow.Answer.Text, arrow.Target.Name), "write `end NAME`")
			}
			continue
		}
		end := &c.t.Ends[h.to].End
		switch {
		case end.Transaction != Rollback:
			c.report(arrow.Target.At, "bad-anywhere", fmt.Sprintf("%s of anywhere leads to end %s, which commits what a step that broke off has left half done", arrow.Answer.Text, end.Name), "lead it to an end with `transaction: rollback`")
		case arrow.Answer.Text == answerError && end.Failure == "":
			c.report(arrow.Target.At, "bad-anywhere", fmt.Sprintf("error of anywhere leads to end %s, which has no failure, so nobody would see the error", end.Name), "lead it to an end with `failure: NAME`")
		case arrow.Answer.Text == answerCancelled && end.Failure != "":
			c.report(arrow.Target.At, "bad-anywhere", fmt.Sprintf("cancelled of anywhere leads to end %s, which is the failure %s, and a shutdown is none", end.Name, end.Failure), "lead it to an end without a failure")
		case arrow.Answer.Text == answerCancelled:
			c.onlyCancelled(h.to)
		}
	}
}

// onlyCancelled refuses an answer that leads to the end of a cancelled run: whoever sees that end must be
// able to trust that the caller asked for it.
func (c *checker) onlyCancelled(end int) {
	for i, hops := range c.next {
		for _, h := range hops {
			if h.end && h.to == end {
				c.report(h.arrow.Target.At, "answer-to-cancelled", fmt.Sprintf("answer %s of state %s leads to end %s, where only a cancelled run ends", h.arrow.Answer.Text, c.t.States[i].Name.Text, c.t.Ends[end].End.Name), "lead it to another end")
			}
		}
	}
}

// endNames checks that every end is one that the program knows, when it closes the set.
func (c *checker) endNames() {
	if c.v.Ends == nil {
		return
	}
	unused := slices.DeleteFunc(slices.Clone(c.v.Ends), func(name string) bool { _, ok := c.ends[name]; return ok })
	for _, row := range c.t.Ends {
		if !slices.Contains(c.v.Ends, row.End.Name) {
			c.report(row.At, "unknown-end", fmt.Sprintf("%q is no end of the machine %s, so no metric, alert or promise knows it", row.End.Name, c.v.Machine), didYouMean(problem.Nearest(row.End.Name, unused), c.v.Ends))
		}
	}
}

// failures checks that every failure is one that the program can tell.
func (c *checker) failures() {
	for _, row := range c.t.Ends {
		if row.End.Failure != "" && !slices.Contains(c.v.Failures, row.End.Failure) {
			c.report(row.FailureAt, "unknown-failure", fmt.Sprintf("end %s has the failure %q, and there is no such failure", row.End.Name, row.End.Failure), didYouMean(problem.Nearest(row.End.Failure, c.v.Failures), c.v.Failures))
		}
	}
}

// bridge leads the arrows to states that are gone to what stood behind these: the states that nothing else leads
// to any more. Where several are gone, the first in the table seems to be followed by the first, and so on.
func (c *checker) bridge() {
	if len(c.gone) == 0 || c.start < 0 {
		return
	}
	led := make([]bool, len(c.t.States))
	led[c.start] = true
	for _, hops := range c.next {
		for _, h := range hops {
			if !h.end {
				led[h.to] = true
			}
		}
	}
	var orphans []int
	for i := range led {
		if !led[i] {
			orphans = append(orphans, i)
		}
	}
	var names []string // of what is gone
	for _, h := range c.gone {
		if !slices.Contains(names, h.gone) {
			names = append(names, h.gone)
		}
	}
	for _, h := range c.gone {
		for i, orphan := range orphans {
			if len(names) != len(orphans) || names[i] == h.gone {
				c.next[h.to] = append(c.next[h.to], hop{arrow: h.arrow, to: orphan, guessed: true, gone: h.gone})
			}
		}
	}
}

// reachable reports states and ends that no path comes to.
func (c *checker) reachable() {
	if c.guess || c.start < 0 {
		return
	}
	states := make([]bool, len(c.t.States))
	ends := make([]bool, len(c.t.Ends))
	for _, arrow := range c.t.Anywhere {
		if i, ok := c.ends[arrow.Target.Name]; ok {
			ends[i] = true
		}
	}
	queue := []int{c.start}
	states[c.start] = true
	for len(queue) > 0 {
		from := queue[0]
		queue = queue[1:]
		for _, h := range c.next[from] {
			switch {
			case h.end:
				ends[h.to] = true
			case !states[h.to]:
				states[h.to] = true
				queue = append(queue, h.to)
			}
		}
	}
	for i, reached := range states {
		if !reached {
			c.report(c.t.States[i].Name.At, "unreachable-state", fmt.Sprintf("no path from the start comes to state %s", c.t.States[i].Name.Text), "lead an answer to it, or remove it")
		}
	}
	for i, reached := range ends {
		if !reached {
			c.report(c.t.Ends[i].At, "unreachable-end", fmt.Sprintf("no path comes to end %s", c.t.Ends[i].End.Name), "lead an answer to it, or remove it")
		}
	}
}

// cycles reports where a walk could go round for ever. Each is reported at the arrow that closes it.
func (c *checker) cycles() {
	const (
		unseen = iota
		open   // on the way from where the search began to here
		done
	)
	colour := make([]int, len(c.t.States))
	var way []int // the states from where the search began to the one being visited
	var visit func(int)
	visit = func(from int) {
		colour[from] = open
		way = append(way, from)
		for _, h := range c.next[from] {
			switch {
			case h.end || h.guessed:
			case colour[h.to] == unseen:
				visit(h.to)
			case colour[h.to] == open:
				c.cycle(way[slices.Index(way, h.to):], h)
			}
		}
		way = way[:len(way)-1]
		colour[from] = done
	}
	for i := range c.t.States {
		if colour[i] == unseen {
			visit(i)
		}
	}
}

// cycle reports one cycle: round is its states in order, and closing leads from the last to the first.
func (c *checker) cycle(round []int, closing hop) {
	var names []string
	for _, i := range append(slices.Clone(round), closing.to) {
		names = append(names, fmt.Sprintf("%s (line %d)", c.t.States[i].Name.Text, c.t.States[i].Name.At.Line))
	}
	c.report(closing.arrow.Target.At, "cycle", "states go round and the run would never end: "+strings.Join(names, " -> "), "lead one of these answers to an end")
}
