// SPDX-License-Identifier: Apache-2.0

// Package restore owns what a restore means, as values: whether a database is the one whose history the cursors
// follow, what a partial restore left apart, what finalizing would do, and the manifest that proves a
// relocation. It is pure: facts in, verdicts out. It knows no statement, no table of steps and no clock.
//
//	State -- Match, Flaws, Plan --> what is to be done
//	State -- ManifestOf --> Manifest -- Differences(State) --> whether a moved database is whole
package restore

import "example.com/bothy/engine/round"

// Verdict says how the stored identity of a database and the present one compare.
type Verdict string

// The verdicts.
const (
	Same          Verdict = "same"           // the server and the history that the cursors follow
	OtherTimeline Verdict = "other_timeline" // the same cluster on another history: recovery to a point, or a promotion
	OtherDatabase Verdict = "other_database" // the same server, and another database of it: a dump that was loaded beside, or a copy
	OtherSystem   Verdict = "other_system"   // another cluster: a dump that was loaded, a major upgrade
	NeverStored   Verdict = "never_stored"   // nothing to compare with: engine migrate up stores the identity
	Unreadable    Verdict = "unreadable"     // the role may not read the identity: neither same nor changed
)

// Match compares the stored identity with the present one. What could not be read is never taken for equal nor
// for changed.
func Match(stored, current round.Identity) Verdict {
	switch {
	case !current.Known():
		return Unreadable
	case !stored.Known():
		return NeverStored
	case stored.System != current.System:
		return OtherSystem
	case stored.Timeline != current.Timeline:
		return OtherTimeline
	case !stored.Same(current):
		return OtherDatabase
	default:
		return Same
	}
}

// Changed reports whether the database is known to be another one.
func (v Verdict) Changed() bool { return v == OtherTimeline || v == OtherSystem || v == OtherDatabase }

// String says it in words, as the rest of a sentence that begins with the database.
func (v Verdict) String() string {
	switch v {
	case Same:
		return "is the one whose history the cursors follow"
	case OtherTimeline:
		return "left its history: it was recovered to a point in time, or promoted"
	case OtherSystem:
		return "is in another cluster than its history: it was loaded from a dump, or upgraded"
	case OtherDatabase:
		return "is another one of the same server: it was loaded from a dump, or copied"
	case NeverStored:
		return "has no stored identity yet: `engine migrate up` stores it"
	case Unreadable:
		return "cannot be told apart from another one: this role may not read its identity"
	default:
		return string(v)
	}
}
