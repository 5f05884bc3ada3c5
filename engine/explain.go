// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/round"
)

// explaining is one explanation in the making.
type explaining struct {
	q       *postgres.Inquiry
	seq     int64
	most    int
	lives   map[string]life
	claimed map[int]bool // groups of jobs that belong to a consumer
}

func (x *explaining) explain(ctx context.Context, consumers []round.Consumer, payload bool) (Explanation, error) {
	result := Explanation{
		Seq: x.seq, Presence: x.presence(), Head: x.q.Head, Floor: x.q.Floor, Epoch: x.q.Epoch,
		Consumers: []Fate{}, Others: []ExplainedJobs{},
	}
	if e := x.q.Event; e != nil {
		result.Event = &ExplainedEvent{
			ID: e.ID, Type: e.Type, Resource: e.Resource, ResourceID: e.ResourceID, Audience: e.Audience, OccurredAt: e.OccurredAt.UTC(), Traceparent: e.Traceparent,
		}
		if !e.EventTime.IsZero() {
			at := e.EventTime.UTC()
			result.Event.EventTime = &at
		}
		if payload {
			result.Event.Payload = e.Payload
		}
	}
	if result.Presence != PresenceAhead {
		for _, c := range consumers {
			fate, err := x.fate(ctx, c)
			if err != nil {
				return result, err
			}
			result.Consumers = append(result.Consumers, fate)
		}
	}
	for i, g := range x.q.Jobs {
		if !x.claimed[i] {
			result.Others = append(result.Others, explainedJobs(g))
		}
	}
	return result, nil
}

func (x *explaining) presence() Presence {
	switch {
	case x.q.Event != nil:
		return PresenceRetained
	case x.seq > x.q.Head:
		return PresenceAhead
	case x.q.Floor == 0 || x.seq < x.q.Floor:
		return PresenceRemoved
	default:
		return PresenceHole
	}
}

// fate is what became of the event at one consumer.
func (x *explaining) fate(ctx context.Context, c round.Consumer) (Fate, error) {
	f := Fate{Consumer: c.Name}
	at, has := x.q.Rows[c.Name]
	if has {
		f.Cursor = &at
	}
	own := x.lives[c.Name]
	names := append(own.formerNames(), c.Name)
	tag := own.nameAt(c.Name, x.seq)
	aside := x.aside(names)
	if aside != nil && aside.Settled == postgres.QuarantineRetried {
		tag = aside.Consumer // its jobs came later, under the name of then
	}
	for i, g := range x.q.Jobs {
		switch {
		case g.Epoch == x.q.Epoch && g.Tag == tag && (own.begin() == nil || x.seq > *own.begin()):
			jobs := explainedJobs(g)
			f.Jobs, f.Verdict, x.claimed[i] = &jobs, VerdictCreated, true
		case g.Epoch != x.q.Epoch && slices.Contains(names, g.Tag):
			f.Older = append(f.Older, explainedJobs(g))
			x.claimed[i] = true
		}
	}
	if f.Jobs != nil {
		return f, nil
	}
	if aside != nil && aside.Settled != postgres.QuarantineRetried {
		f.Verdict, f.Reason = VerdictQuarantined, "the event "+aside.String()
		if aside.Settled == postgres.QuarantineDropped {
			f.Verdict = VerdictDropped
		}
		return f, nil
	}
	if x.withoutRule(&f, c, own, at, has) {
		return f, nil
	}
	return f, x.byRule(ctx, &f, c, at)
}

// aside is the newest word about the event in the quarantine of a consumer, by all its names; nil when there is
// none.
func (x *explaining) aside(names []string) *postgres.Aside {
	for i := len(x.q.Asides) - 1; i >= 0; i-- {
		if slices.Contains(names, x.q.Asides[i].Consumer) {
			return &x.q.Asides[i]
		}
	}
	return nil
}

// withoutRule decides what can be told without asking the rule.
func (x *explaining) withoutRule(f *Fate, c round.Consumer, own life, at int64, has bool) bool {
	presence := x.presence()
	switch {
	case !has:
		f.Verdict, f.Reason = VerdictNoCursor, "it has no cursor yet: it begins at the head when it first runs, and this event is not after it"
	case own.restored != nil && x.seq <= *own.begin():
		f.Verdict, f.Reason = VerdictRestored, fmt.Sprintf("the history up to event %d ended: a restore was finalized on %s (audit %d); jobs of before carry an older epoch, and what was still to see was given up",
			*own.begin(), own.restored.At.UTC().Format(time.RFC3339), own.restored.Seq)
	case own.start != nil && own.restored == nil && x.seq <= *own.start:
		f.Verdict, f.Reason = VerdictBeforeStart, fmt.Sprintf("it began after event %d; a new consumer never sees what was there before", *own.start)
	case own.loss(x.seq) != nil:
		f.Verdict, f.Reason = VerdictLost, fmt.Sprintf("retention had removed the event before it was reached: it %s", own.loss(x.seq))
	case presence == PresenceRemoved && at < x.seq:
		f.Verdict, f.Reason = VerdictLost, fmt.Sprintf("lost: retention removed the event while the cursor was at %d", at)
	case presence == PresenceRemoved:
		f.Verdict, f.Reason = VerdictUnknown, fmt.Sprintf("its cursor is at %d; retention has removed the event, so nothing tells whether it made jobs, or was lost", at)
	case presence == PresenceHole && at < x.seq:
		f.Verdict, f.Reason = VerdictWaiting, fmt.Sprintf("its cursor is at %d, and it stops before the hole", at)
	case presence == PresenceHole && own.skip(x.seq) != nil:
		f.Verdict, f.Reason = VerdictSkipped, "the event is missing from the log, and the consumer "+own.skip(x.seq).String()
	case presence == PresenceHole:
		f.Verdict, f.Reason = VerdictUnknown, fmt.Sprintf("its cursor is at %d; the event is missing from the log, so nothing tells whether it made jobs", at)
	case !c.Types.Match(x.q.Event.Type):
		f.Verdict, f.Reason = VerdictTypes, fmt.Sprintf("its types are %s, and none matches %s", strings.Join(c.Types, ", "), x.q.Event.Type)
	case c.Rule.Kind == round.RuleHandler:
		f.Verdict, f.Reason = x.byHandler(c, at)
	default:
		return false
	}
	return true
}

// byHandler is what can be said about a handler rule: the handler may write, so it is not called.
func (x *explaining) byHandler(c round.Consumer, at int64) (Verdict, string) {
	asked := fmt.Sprintf("its handler %q was not asked, since it may write", c.Rule.Handler)
	if at < x.seq {
		return VerdictWaiting, x.notReached(at) + "; " + asked
	}
	return VerdictHandler, fmt.Sprintf("its cursor is at %d and there are no jobs: the handler gave nobody, or they are gone; %s", at, asked)
}

// byRule asks the rule, and decides by what it gives now.
func (x *explaining) byRule(ctx context.Context, f *Fate, c round.Consumer, at int64) error {
	targets, err := x.targets(ctx, c)
	if wrong, ok := errors.AsType[*postgres.RuleError](err); ok {
		f.Verdict, f.Reason = VerdictRuleFails, wrong.Error()
		if at < x.seq {
			f.Reason = x.notReached(at) + "; " + f.Reason
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask the rule of consumer %q: %w", c.Name, err)
	}
	if len(targets) > 0 {
		f.Would = &WouldBe{Kind: c.Job.Kind, Queue: c.Job.Queue, Count: len(targets)}
		for _, t := range targets[:min(len(targets), x.most)] {
			f.Would.Recipients = append(f.Would.Recipients, t.Recipient)
		}
	}
	switch {
	case at < x.seq:
		f.Verdict, f.Reason = VerdictWaiting, x.notReached(at)
		if len(targets) == 0 {
			f.Reason += "; " + nobody(c)
		}
	case len(targets) == 0:
		f.Verdict, f.Reason = VerdictNobody, nobody(c)
	default:
		f.Verdict, f.Reason = x.unfound(c, at, x.lives[c.Name].begin() != nil)
	}
	return nil
}

// targets is what a rule gives for the event now.
func (x *explaining) targets(ctx context.Context, c round.Consumer) ([]round.Target, error) {
	if c.Rule.Kind == round.RuleQuery {
		decision, err := x.q.Recipients(ctx, c)
		return decision.Targets, err
	}
	return round.Decide(c.Rule, []round.Event{*x.q.Event}, c.MaxJobs, x.seq).Targets, nil
}

// nobody says why a rule gives no recipient.
func nobody(c round.Consumer) string {
	switch c.Rule.Kind {
	case round.RuleQuery:
		return "its query gives nobody now (the tables that it reads may have changed since)"
	case round.RuleField:
		return fmt.Sprintf("the event's %s, which names the recipients, is empty", c.Rule.Field)
	case round.RuleNone, round.RuleList, round.RuleHandler: // these always give somebody, or are not asked
	}
	return "its rule gives nobody"
}

// notReached says how far a consumer still is from the event.
func (x *explaining) notReached(at int64) string {
	switch before := x.seq - at - 1; before {
	case 0:
		return fmt.Sprintf("not reached yet: its cursor is at %d, and this event is next", at)
	case 1:
		return fmt.Sprintf("not reached yet: its cursor is at %d, 1 event comes before this one", at)
	default:
		return fmt.Sprintf("not reached yet: its cursor is at %d, %d events come before this one", at, before)
	}
}

// riverKeeps is how long a River client keeps completed jobs unless its CompletedJobRetentionPeriod says
// otherwise. The setting is in the program of the user that works them, so the engine cannot read it.
const riverKeeps = 24 * time.Hour

// unfound explains jobs that the rule gives, of an event that was passed, and that are not there.
func (x *explaining) unfound(c round.Consumer, at int64, recorded bool) (Verdict, string) {
	kept := !x.q.Kept.IsZero() && x.q.Kept.Before(x.q.Event.OccurredAt)
	if c.Rule.Kind == round.RuleQuery {
		return VerdictChanged, fmt.Sprintf("its cursor is at %d, no job is there, and its query gives somebody now: the tables that it reads have changed since, "+
			"or the jobs are gone (River deletes completed ones after CompletedJobRetentionPeriod)", at)
	}
	if !kept && x.q.Age >= riverKeeps {
		return VerdictGone, fmt.Sprintf("its cursor is at %d; its jobs are gone: River deletes completed ones after CompletedJobRetentionPeriod (24 hours unless the program that works them says otherwise)", at)
	}
	if !recorded {
		return VerdictUnknown, fmt.Sprintf("its cursor is at %d and no job is there; the consumer is older than the audit, so it may have begun after this event", at)
	}
	because := "River keeps completed ones for 24 hours, unless CompletedJobRetentionPeriod of the program that works them is shorter"
	if kept {
		because = "River still keeps jobs that were completed before this event occurred"
	}
	return VerdictMissing, fmt.Sprintf("its cursor is at %d and its jobs are missing: %s. Somebody deleted them, or the consumer's entry was another one then", at, because)
}

func explainedJobs(g postgres.JobGroup) ExplainedJobs {
	jobs := ExplainedJobs{Tag: g.Tag, Epoch: g.Epoch, Count: g.Count, Jobs: make([]ExplainedJob, len(g.Jobs))}
	for i, j := range g.Jobs {
		jobs.Jobs[i] = ExplainedJob(j)
	}
	return jobs
}
