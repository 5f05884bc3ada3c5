// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// word says a finding in words, and what to do about it.
func (x *examining) word(f *Finding) {
	if f.What != "" && f.Code != FindingRuleFails {
		return
	}
	events, jobs := counted(f.Count, "event"), counted(f.Count, "job")
	where := numbers(f)
	switch f.Code {
	case FindingUnfinalized:
		f.What = "this database is not the one whose history the cursors follow: it was restored, promoted or copied, and no round runs until that is settled"
		f.Do = "run `engine restore finalize` once the producers are stopped"
	case FindingHole:
		f.What = fmt.Sprintf("the log has a hole: %s missing (%s); a consumer stops before the first one", is(f.Count, "number"), spans(f.Spans, f.Count))
		f.Do = "find out who deleted rows of event_log or wrote event_seq by hand, and bring the events back from a backup; " +
			"when they are gone for good, `engine consumers skip` moves the consumers on and writes that to the audit"
	case FindingCursorAhead:
		f.What = fmt.Sprintf("its cursor is %s above the head of the log: two histories were mixed, and it does nothing until the head has passed the cursor", counted(f.Count, "number"))
		f.Do = "the log was restored without its cursors, or a cursor was moved by hand: run `engine restore finalize`, and never write the cursor yourself"
	case FindingWaiting:
		f.What = fmt.Sprintf("%s not reached yet%s", is(f.Count, "event"), where)
		f.Do = "nothing while `engine status` shows it moving; else read the log of the workers for this consumer"
	case FindingLost:
		f.What = fmt.Sprintf("retention removed %s%s before it reached them: their jobs will never be made", events, where)
		f.Do = "start the workers: it goes on at the first event that is left; raise sync.event_retention when it may stand still for so long again"
	case FindingBeforeStart:
		f.What = fmt.Sprintf("it never gets %s%s that the log still holds: a new consumer does not see what was there before, and a finalized restore gives up what was left", events, where)
	case FindingQuarantined:
		f.What = fmt.Sprintf("%s set aside%s: they have no jobs until they are retried", is(f.Count, "event"), where)
		f.Do = "see why with `engine quarantine list`, mend the rule, then `engine quarantine retry`"
	case FindingNoCursor:
		f.What = "it has no cursor: it has never run, and will begin at the head"
	case FindingUndeclared:
		f.What = "the file does not declare it, and it has a cursor"
		if f.Count > 0 {
			f.What = fmt.Sprintf("the file does not declare it, and there are %s under its name%s", jobs, where)
		}
		f.Do = "see `engine plan`: it was renamed, retired, or belongs to another file"
	default:
		x.wordJobs(f, jobs, where)
	}
}

// wordJobs is word for what is about jobs.
func (x *examining) wordJobs(f *Finding, jobs, where string) {
	switch f.Code {
	case FindingStaleEpoch:
		f.What = fmt.Sprintf("%s of an epoch before a restore%s, all finished", is(f.Count, "job"), where)
		if f.Severity == SeverityWrong {
			f.What = fmt.Sprintf("%s of an epoch before a restore%s and not finished: a worker would do again, or do for events that no longer are, what they say", is(f.Count, "job"), where)
			f.Do = "`engine restore finalize` settles them; where it has run already, cancel them in River"
		}
	case FindingJobMissing:
		f.What = fmt.Sprintf("%s missing%s: the events were passed, the rule gives the jobs, and River would still keep them", is(f.Count, "job"), where)
		f.Do = "see one with `engine why`. Somebody deleted them, the consumer's entry was another one then (look from a later event with --from), " +
			"or CompletedJobRetentionPeriod of the program that works them is below 24 hours. To make up for real ones, insert them by hand with the same arguments"
	case FindingJobGone:
		f.What = fmt.Sprintf("%s not there any more%s: River deletes completed ones after CompletedJobRetentionPeriod", is(f.Count, "job"), where)
	case FindingJobUnknown:
		f.What = fmt.Sprintf("%s not there%s, and the audit does not say where this consumer began: it may have been after these events", is(f.Count, "job"), where)
	case FindingJobDoubled:
		f.What = fmt.Sprintf("%s there twice or more often%s: the same event, recipient and epoch", is(f.Count, "job"), where)
		f.Do = "see one with `engine why`, and cancel the later job in River. A round cannot do this: look for a cursor that was moved back, or a program that inserts or copies such jobs"
	case FindingJobNoEvent:
		f.What = fmt.Sprintf("%s made of events that the log does not hold%s", is(f.Count, "job"), where)
		f.Do = "the events were deleted after the round, or the jobs came from another database: bring the events back, or cancel the jobs"
	case FindingJobAhead:
		f.What = fmt.Sprintf("%s made of events that its cursor has not passed, the first of event %s: they will be made a second time", is(f.Count, "job"), strconv.FormatInt(f.Examples[0], 10))
		f.Do = "stop the workers. The cursor was moved back, or the database was restored in part: set it right, or cancel these jobs, before they start again"
	case FindingJobExtra:
		f.What = fmt.Sprintf("%s not what the rule gives%s", is(f.Count, "job"), where)
		f.Do = "the consumer's entry was another one when they were made (look from a later event with --from), or another program uses its name as a tag"
	case FindingRuleChanged:
		f.What = fmt.Sprintf("%s differ%s from what its query gives now%s: not provable, since the tables that it reads may have changed since", jobs, s(f.Count), where)
	case FindingRuleFails:
		f.What = fmt.Sprintf("its rule cannot be run over events %d to %d, so that its jobs are not compared from there on: %s", f.Seqs.First, f.Seqs.Last, f.What)
		f.Do = "mend the query: a round would fail on it too; `engine validate --database` says where it is wrong"
	case FindingHandler:
		f.What = "its handler may write, so it is not asked: only doubled jobs, jobs of no event and jobs ahead of the cursor are looked for"
	case FindingCounterBehind, FindingRowGone, FindingUnfinalized, FindingHeld, FindingHole, FindingUndeclared, FindingNoCursor, FindingCursorAhead,
		FindingWaiting, FindingLost, FindingBeforeStart, FindingQuarantined: // worded before
	}
}

// is is a count as the subject of a sentence.
func is(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing + " is"
	}
	return counted(n, thing) + " are"
}

func counted(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.FormatInt(n, 10) + " " + thing + "s"
}

// s is the ending of a verb.
func s(n int64) string {
	if n == 1 {
		return "s"
	}
	return ""
}

// numbers says of which events a finding is.
func numbers(f *Finding) string {
	switch {
	case f.Seqs == nil:
		return ""
	case f.Seqs.First == f.Seqs.Last:
		return fmt.Sprintf(" (event %d)", f.Seqs.First)
	case len(f.Examples) > 0 && f.Count <= int64(len(f.Examples)):
		words := make([]string, len(f.Examples))
		for i, n := range f.Examples {
			words[i] = strconv.FormatInt(n, 10)
		}
		return " (events " + strings.Join(words, ", ") + ")"
	default:
		return fmt.Sprintf(" (events %d to %d)", f.Seqs.First, f.Seqs.Last)
	}
}

// spans lists the first holes.
func spans(list []Span, count int64) string {
	words, named := make([]string, 0, len(list)), int64(0)
	for _, h := range list {
		named += h.Last - h.First + 1
		if h.First == h.Last {
			words = append(words, strconv.FormatInt(h.First, 10))
			continue
		}
		words = append(words, fmt.Sprintf("%d to %d", h.First, h.Last))
	}
	if named < count {
		words = append(words, "and more")
	}
	return strings.Join(words, ", ")
}
