// SPDX-License-Identifier: Apache-2.0

package engine

import "example.com/bothy/engine/postgres"

// life is what the audit knows of one consumer: where it started, and under which names it passed which
// events.
type life struct {
	start   *int64          // the last number that it did not see; nil when it was made before there was an audit
	former  []span          // earlier names, oldest first
	lost    []postgres.Deed // the losses to retention
	skipped []postgres.Deed // the holes that an operator moved it over
	dropped []int64         // the events that were set aside and then given up
	// restored is the last restore that was finalized: the present epoch began then, at its head.
	restored *postgres.Deed
}

// begin is the last number that the consumer has no job for in the present epoch: where it started, or where that
// epoch did; nil when neither is recorded.
func (l life) begin() *int64 {
	if l.restored != nil {
		return l.restored.Details.Head
	}
	return l.start
}

// span is a name that a consumer had until it had passed the number through.
type span struct {
	name    string
	through int64
}

// lives follows the deeds and gives the life of every consumer by its present name.
func lives(deeds []postgres.Deed) map[string]life {
	all := map[string]life{}
	for _, d := range deeds {
		switch d.Action {
		case postgres.ConsumerCreated:
			all[d.Subject] = life{start: d.Details.LastSeq}
		case postgres.ConsumerRenamed:
			l := all[d.Subject]
			if d.Details.LastSeq != nil {
				l.former = append(l.former, span{d.Subject, *d.Details.LastSeq})
			}
			delete(all, d.Subject)
			all[d.Details.To] = l
		case postgres.ConsumerLost:
			l := all[d.Subject]
			l.lost = append(l.lost, d)
			all[d.Subject] = l
		case postgres.RestoreFinalized:
			for _, moved := range d.Details.Cursors { // also those that were made before there was an audit
				for _, n := range moved.Named {
					if _, known := all[n.Name]; !known {
						all[n.Name] = life{}
					}
				}
			}
			for name, l := range all {
				// What was told of numbers of before may be about other events now.
				l.restored, l.lost, l.skipped, l.dropped = &d, nil, nil, nil
				all[name] = l
			}
		case postgres.ConsumerRetired:
			delete(all, d.Subject)
		case postgres.ConsumerSkipped:
			l := all[d.Subject]
			l.skipped = append(l.skipped, d)
			all[d.Subject] = l
		case postgres.QuarantineDropped:
			l := all[d.Subject]
			l.dropped = append(l.dropped, d.Details.Seq)
			all[d.Subject] = l
		case postgres.QuarantineRetried: // it has its jobs
		case postgres.EnvironmentChanged, postgres.Relocated: // nobody lost an event or a place
		}
	}
	return all
}

// nameAt is the name under which a consumer that is now called name passed an event, or will: the tag of its
// jobs.
func (l life) nameAt(name string, seq int64) string {
	for _, s := range l.former {
		if seq <= s.through {
			return s.name
		}
	}
	return name
}

// loss is the deed that records that an event was lost, or nil.
func (l life) loss(seq int64) *postgres.Deed { return about(l.lost, seq) }

// skip is the deed that moved the consumer over a number, or nil.
func (l life) skip(seq int64) *postgres.Deed { return about(l.skipped, seq) }

// about is the first deed whose range holds a number, or nil.
func about(deeds []postgres.Deed, seq int64) *postgres.Deed {
	for i, d := range deeds {
		if d.Details.First <= seq && seq <= d.Details.Last {
			return &deeds[i]
		}
	}
	return nil
}

// formerNames are the earlier names, oldest first.
func (l life) formerNames() []string {
	names := make([]string, len(l.former))
	for i, s := range l.former {
		names[i] = s.name
	}
	return names
}
