// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/round"
)

// examine looks at everything once: the ends of the log, the cursors, River's table from its first row to its last, and then the
// log from its first number to its last, comparing each consumer's jobs on the way.
func (x *examining) examine(ctx context.Context) (err error) {
	if x.seen, err = x.x.Overview(ctx); err != nil {
		return err
	}
	x.lives = lives(x.seen.Deeds)
	if x.guarded && !x.seen.Installation.Same {
		x.add(Finding{Code: FindingUnfinalized, Severity: SeverityWrong, Count: 1})
	}
	if err := x.countJobs(ctx); err != nil {
		return err
	}
	x.cursors()
	first, last := max(x.seen.Floor, x.o.From, 1), max(x.seen.Head, x.seen.Highest)
	if x.seen.Floor == 0 {
		first = max(first, x.lowestCursor()+1) // an empty log: only what somebody still waits for is known to be missing
	}
	for from := first; from <= last; {
		through := min(last, from+x.o.Chunk-1)
		x.o.Progress(from-first, last-first+1)
		if err := x.chunk(ctx, Span{First: from, Last: through}); err != nil {
			return err
		}
		from = through + 1
	}
	x.o.Progress(max(0, last-first+1), max(0, last-first+1))
	return nil
}

// lowestCursor is the lowest cursor of the examined consumers, or the head.
func (x *examining) lowestCursor() int64 {
	lowest := x.seen.Head
	for _, c := range x.consumers {
		if at, has := x.seen.Rows[c.Name]; has {
			lowest = min(lowest, at)
		}
	}
	return lowest
}

// countJobs walks through River's table by its key.
func (x *examining) countJobs(ctx context.Context) error {
	names := x.tags()
	var groups []postgres.TaggedJobs
	for after := int64(0); ; {
		part, err := x.x.Jobs(ctx, after, jobsChunk, x.o.From, names)
		if err != nil {
			return err
		}
		groups = append(groups, part.Groups...)
		if part.Rows < jobsChunk {
			break
		}
		after = part.Through
	}
	known := x.known()
	for _, g := range groups {
		name := cmp.Or(names[g.Tag], g.Tag)
		if x.o.Consumer != "" && name != x.o.Consumer {
			continue
		}
		switch {
		case !slices.Contains(known, g.Tag):
			x.add(Finding{Code: FindingUndeclared, Severity: SeverityNote, Consumer: g.Tag, Count: g.Count, Seqs: &g.Seqs})
			continue
		case g.Epoch != x.seen.Epoch:
			if g.Open > 0 {
				x.add(Finding{Code: FindingStaleEpoch, Severity: SeverityWrong, Consumer: name, Count: g.Open, Seqs: &g.Seqs})
			}
			if done := g.Count - g.Open; done > 0 {
				x.add(Finding{Code: FindingStaleEpoch, Severity: SeverityNote, Consumer: name, Count: done, Seqs: &g.Seqs})
			}
			continue
		case g.Ahead > 0:
			x.add(Finding{Code: FindingJobAhead, Severity: SeverityWrong, Consumer: name, Count: g.Ahead, Examples: []int64{g.AheadFirst}})
		}
		if !slices.Contains(x.kinds[g.Tag], g.Kind) {
			x.kinds[g.Tag] = append(x.kinds[g.Tag], g.Kind)
		}
		if have, ok := x.byTag[g.Tag]; ok {
			g.Seqs = Span{First: min(have.First, g.Seqs.First), Last: max(have.Last, g.Seqs.Last)}
		}
		x.byTag[g.Tag] = g.Seqs
		x.counts[g.Tag] += g.Count
	}
	return nil
}

// cursors says what their places alone tell.
func (x *examining) cursors() {
	for _, name := range slices.Sorted(maps.Keys(x.seen.Rows)) {
		if !slices.Contains(x.declared, name) && x.o.Consumer == "" {
			x.add(Finding{Code: FindingUndeclared, Severity: SeverityNote, Consumer: name})
		}
	}
	floor, head := x.seen.Floor, max(x.seen.Head, x.seen.Highest)
	for _, c := range x.consumers {
		at, has := x.seen.Rows[c.Name]
		checkup := &Checkup{Consumer: c.Name}
		x.checkups[c.Name] = checkup
		if !has {
			x.add(Finding{Code: FindingNoCursor, Severity: SeverityNote, Consumer: c.Name})
			continue
		}
		checkup.Cursor = &at
		seqs := func(first, last int64) *Span { return &Span{First: first, Last: last} }
		if at > head {
			x.add(Finding{Code: FindingCursorAhead, Severity: SeverityWrong, Consumer: c.Name, Count: at - head, Seqs: seqs(head+1, at)})
		}
		if at+1 < floor {
			x.add(Finding{Code: FindingLost, Severity: SeverityWrong, Consumer: c.Name, Count: floor - at - 1, Seqs: seqs(at+1, floor-1)})
		}
		if next := max(at+1, floor); next <= head {
			x.add(Finding{Code: FindingWaiting, Severity: SeverityNote, Consumer: c.Name, Count: head - next + 1, Seqs: seqs(next, head)})
		}
		from := max(floor, x.o.From, 1)
		if start := x.lives[c.Name].begin(); floor > 0 && start != nil && *start >= from {
			x.add(Finding{Code: FindingBeforeStart, Severity: SeverityNote, Consumer: c.Name, Count: *start - from + 1, Seqs: seqs(from, *start)})
		}
		if aside := x.seen.Aside[c.Name]; len(aside) > 0 {
			x.add(Finding{
				Code: FindingQuarantined, Severity: SeverityNote, Consumer: c.Name, Count: int64(len(aside)),
				Seqs: seqs(aside[0], aside[len(aside)-1]), Examples: aside[:min(len(aside), maxExamples)],
			})
		}
		if c.Rule.Kind == round.RuleHandler {
			x.add(Finding{Code: FindingHandler, Severity: SeverityNote, Consumer: c.Name})
		}
	}
}

// chunk examines a run of numbers: its holes, and the jobs of every consumer that has passed it.
func (x *examining) chunk(ctx context.Context, span Span) error {
	part, err := x.x.Log(ctx, span)
	if err != nil {
		return err
	}
	if part.Missing > 0 {
		x.add(Finding{
			Code: FindingHole, Severity: SeverityWrong, Count: part.Missing, Spans: part.Holes[:min(len(part.Holes), maxExamples)],
			Seqs: &Span{First: part.Holes[0].First, Last: part.Holes[len(part.Holes)-1].Last},
		})
	}
	if part.First > part.Last {
		return nil // retention removed it while the doctor was at work
	}
	for _, c := range x.consumers {
		at, has := x.seen.Rows[c.Name]
		own := x.lives[c.Name]
		first, last := part.First, min(part.Last, at)
		if begin := own.begin(); begin != nil {
			first = max(first, *begin+1)
		}
		if !has || first > last || slices.Contains(x.broken, c.Name) {
			continue
		}
		for _, st := range x.stretches(c, Span{First: first, Last: last}) {
			if err := x.compare(ctx, c, st); err != nil {
				return err
			}
		}
	}
	return nil
}

// stretches cut a run of events where the consumer got another name.
func (x *examining) stretches(c round.Consumer, span Span) (all []postgres.Stretch) {
	add := func(tag string, last int64) {
		if last < span.First {
			return
		}
		kinds := x.kinds[tag]
		if jobs, found := x.byTag[tag]; !found || jobs.First > last || jobs.Last < span.First {
			kinds = []string{} // no job of these numbers: River's table need not be read again
		}
		all = append(all, postgres.Stretch{Span: Span{First: span.First, Last: last}, Tag: tag, Kinds: kinds, Since: x.since(), Aside: x.aside(c.Name, span.First, last)})
		span.First = last + 1
	}
	for _, former := range x.lives[c.Name].former {
		add(former.name, min(former.through, span.Last))
	}
	add(c.Name, span.Last)
	return all
}

// aside are the events between two numbers that a consumer has set aside, or that were given up from there.
func (x *examining) aside(name string, first, last int64) (all []int64) {
	for _, seq := range slices.Concat(x.seen.Aside[name], x.lives[name].dropped) {
		if first <= seq && seq <= last {
			all = append(all, seq)
		}
	}
	return all
}

// compare compares one stretch, in smaller parts when it takes too long.
func (x *examining) compare(ctx context.Context, c round.Consumer, st postgres.Stretch) error {
	d, err := x.x.Compare(ctx, c, st)
	if postgres.TookTooLong(err) && st.Last-st.First >= smallChunk {
		for from := st.First; from <= st.Last; from += smallChunk {
			part := st
			part.Span, part.ByNumber = Span{First: from, Last: min(st.Last, from+smallChunk-1)}, x.counts[st.Tag] > manyJobs
			if partErr := x.compare(ctx, c, part); partErr != nil {
				return partErr
			}
			if slices.Contains(x.broken, c.Name) {
				break
			}
		}
		return nil
	}
	wrong, ofRule := errors.AsType[*postgres.RuleError](err)
	if !ofRule && postgres.TookTooLong(err) && c.Rule.Kind == round.RuleQuery {
		wrong, ofRule = &postgres.RuleError{What: fmt.Sprintf("took longer than %v for %d events", x.o.Timeout, st.Last-st.First+1), Fix: "see why with EXPLAIN, or give the doctor more time with --timeout"}, true
	}
	if ofRule {
		x.broken = append(x.broken, c.Name)
		x.add(Finding{Code: FindingRuleFails, Severity: SeverityWrong, Consumer: c.Name, What: wrong.Error(), Seqs: &st.Span, Count: st.Last - st.First + 1})
		return nil
	}
	if err != nil {
		return err
	}
	x.record(c, d)
	return nil
}

// record turns the differences of a stretch into findings.
func (x *examining) record(c round.Consumer, d postgres.Differences) {
	checkup := x.checkups[c.Name]
	checkup.Events += max(0, d.Last-d.First+1)
	checkup.Expected += d.Expected
	checkup.Found += d.Found
	query, recorded := c.Rule.Kind == round.RuleQuery, x.lives[c.Name].begin() != nil
	for _, k := range d.Kinds {
		f := Finding{Severity: SeverityWrong, Consumer: c.Name, Count: k.Count, Seqs: &k.Seqs, Examples: k.Examples}
		changed := func(code FindingCode) {
			if f.Code = code; query {
				f.Code, f.Severity = FindingRuleChanged, SeverityNote
			}
		}
		switch k.Mismatch {
		case postgres.MismatchMissing, postgres.MismatchGone:
			checkup.Missing += k.Count
			switch {
			case k.Mismatch == postgres.MismatchGone:
				f.Code, f.Severity = FindingJobGone, SeverityNote
			case !recorded && !query:
				f.Code, f.Severity = FindingJobUnknown, SeverityNote
			default:
				changed(FindingJobMissing)
			}
		case postgres.MismatchDoubled:
			checkup.Doubled += k.Count
			f.Code = FindingJobDoubled
		case postgres.MismatchExtra:
			checkup.Extra += k.Count
			changed(FindingJobExtra)
		case postgres.MismatchNoEvent:
			checkup.Extra += k.Count
			f.Code = FindingJobNoEvent
		}
		x.add(f)
	}
}
