// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"

	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/problem"
)

// Kinds are all problems that the engine reports, one for each code, by code. Rooms that read the same grammar share
// codes: the first of them says what it means.
func Kinds() []problem.Kind {
	seen := map[string]bool{}
	var all []problem.Kind
	for _, room := range [][]problem.Kind{fileKinds, machine.Kinds(), eventKinds, startKinds} {
		for _, k := range room {
			if !seen[k.Code] {
				seen[k.Code] = true
				all = append(all, k)
			}
		}
	}
	slices.SortFunc(all, func(a, b problem.Kind) int { return cmp.Compare(a.Code, b.Code) })
	return all
}

// startKinds are what this room reports itself, once there is a database.
var startKinds = []problem.Kind{
	{Code: "bad-rule", Severity: problem.Error, Means: "The database refuses the query of a recipient rule, or the query gives other columns than seq and recipient: every round of the consumer would fail."},
	{Code: "unknown-handler", Severity: problem.Error, Means: "A recipient rule names a Go function that this program has not registered, so nobody could decide who gets a job."},
}

// fileKinds are the codes of engine/document and engine/config.
var fileKinds = []problem.Kind{
	{Code: "bad-choice", Severity: problem.Error, Means: "A mapping holds two keys of which one is allowed, or none: a consumer has one recipient rule."},
	{Code: "bad-count", Severity: problem.Error, Means: "A value is no whole number in plain digits, or is out of its range. Other spellings of a number are read differently by different YAML readers."},
	{Code: "bad-duration", Severity: problem.Error, Means: "A value is no duration with a unit, such as 5s, or is out of its range."},
	{Code: "bad-encoding", Severity: problem.Error, Means: "The file, or a variable that it names, holds bytes that are not UTF-8, so that characters cannot be told."},
	{Code: "bad-handler", Severity: problem.Error, Means: "The name of a handler has a form that no program can register."},
	{Code: "bad-key", Severity: problem.Error, Means: "A free key of a mapping has a form that is not allowed there."},
	{Code: "bad-kind", Severity: problem.Error, Means: "A job kind has a form that River's workers refuse: a job of that kind would be inserted and never worked."},
	{Code: "bad-label", Severity: problem.Error, Means: "A label has characters that labels do not have; it is compared with the one that the database holds."},
	{Code: "bad-merge", Severity: problem.Error, Means: "A merge key << does not name a mapping, or merges a mapping into itself."},
	{Code: "bad-name", Severity: problem.Error, Means: "A name has characters or a length that names do not have. The name of a consumer is a key in the database, the tag of its jobs and a label of metrics."},
	{Code: "bad-pattern", Severity: problem.Error, Means: "A pattern of event types is empty, too long or holds a blank, so that it could match no event."},
	{Code: "bad-query", Severity: problem.Error, Means: "The query of a recipient rule is not one SELECT, as far as that can be told without a database."},
	{Code: "bad-queue", Severity: problem.Error, Means: "The name of a queue has a form that River's clients refuse: nobody could work its jobs."},
	{Code: "bad-recipient", Severity: problem.Error, Means: "A fixed recipient cannot be stored in the arguments of a job."},
	{Code: "bad-role", Severity: problem.Error, Means: "A name cannot be that of a database role."},
	{Code: "bad-schema", Severity: problem.Error, Means: "A name cannot be that of a schema, or is one that PostgreSQL keeps for itself."},
	{Code: "bad-switch", Severity: problem.Error, Means: "A value is neither true nor false. Words such as yes and on are read differently by different YAML readers."},
	{Code: "bad-title", Severity: problem.Error, Means: "A title is not one short line."},
	{Code: "bad-url", Severity: problem.Error, Means: "A connection is neither a postgres:// URL nor key=value pairs. The text is never shown: it may hold a password."},
	{Code: "bad-value", Severity: problem.Error, Means: "A free value holds something that has no one meaning in JSON, such as a number that YAML readers read differently."},
	{Code: "bad-version", Severity: problem.Error, Means: "The file is written in another version of its grammar than this program reads."},
	{Code: "bad-word", Severity: problem.Error, Means: "A value is none of the words that its key takes."},
	{Code: "bad-yaml", Severity: problem.Error, Means: "The file is not YAML from this place on, so nothing in it can be relied on."},
	{Code: "byte-order-mark", Severity: problem.Error, Means: "A byte-order mark stands in the middle of the file, most likely where two files were joined."},
	{Code: "control-character", Severity: problem.Error, Means: "The file holds a character that cannot be seen and that YAML does not allow."},
	{Code: "duplicate-entry", Severity: problem.Error, Means: "A list holds an entry twice."},
	{Code: "duplicate-key", Severity: problem.Error, Means: "A key stands twice in one mapping, and YAML readers differ about which of the two counts."},
	{Code: "duplicate-name", Severity: problem.Error, Means: "Two consumers have one name: they would share one cursor, and each would lose the events that the other took."},
	{Code: "empty-file", Severity: problem.Error, Means: "The file holds no value."},
	{Code: "empty-list", Severity: problem.Error, Means: "A list is empty where it says nothing then."},
	{Code: "empty-value", Severity: problem.Error, Means: "A text is empty where an empty one means nothing."},
	{Code: "file-too-large", Severity: problem.Error, Means: "The file is larger than any honest one. The bound keeps memory and time small, whatever is read."},
	{Code: "long-list", Severity: problem.Error, Means: "A list has more entries than are read."},
	{Code: "missing-key", Severity: problem.Error, Means: "A key that has no default is not there."},
	{Code: "missing-value", Severity: problem.Error, Means: "A key stands there without a value."},
	{Code: "no-file", Severity: problem.Error, Means: "There is no file of that name."},
	{Code: "not-a-file", Severity: problem.Error, Means: "The name is that of a directory, a pipe or a device. It is not opened: reading it might never end."},
	{Code: "odd-blank", Severity: problem.Error, Means: "A character looks like a blank, or like nothing, and is none to YAML: the file means something else than its author sees."},
	{Code: "odd-variable", Severity: problem.Warning, Means: "A text holds ${ without a plain name and }. It stays as it is written, which is seldom what was meant."},
	{Code: "second-document", Severity: problem.Error, Means: "The file holds a second YAML document, of which nothing would be read."},
	{Code: "tab-indentation", Severity: problem.Error, Means: "A line is indented with a tab, and YAML takes only spaces."},
	{Code: "too-many-aliases", Severity: problem.Error, Means: "With its aliases written out, the file is larger than any honest one. The bound keeps memory and time small."},
	{Code: "unknown-key", Severity: problem.Error, Means: "A key is not known at this place, most likely a slip of the hand; what it says would be ignored."},
	{Code: "unreadable-file", Severity: problem.Error, Means: "The file is there and cannot be read by this user."},
	{Code: "unset-variable", Severity: problem.Warning, Means: "A value names a variable that is not set. Where nothing is run that is the normal state and a warning; at a start it is an error."},
	{Code: "wrong-kind", Severity: problem.Error, Means: "A value is of another kind than its key takes: one value, a list or a mapping."},
	{Code: "yaml-tag", Severity: problem.Error, Means: "A value has a YAML tag, which changes what its text means."},
}

// eventKinds are the codes of engine/cloudevents.
var eventKinds = []problem.Kind{
	{Code: "bad-attribute", Severity: problem.Error, Means: "An attribute of an event has a value that CloudEvents or the event log does not take."},
	{Code: "bad-json", Severity: problem.Error, Means: "The text is not JSON from this place on."},
	{Code: "bad-number", Severity: problem.Error, Means: "A number has more digits than the event log can store."},
	{Code: "duplicate-attribute", Severity: problem.Error, Means: "An attribute stands twice in one event, and readers differ about which of the two counts."},
	{Code: "lone-surrogate", Severity: problem.Error, Means: "A text holds half of a surrogate pair, which is no character and cannot be stored."},
	{Code: "missing-attribute", Severity: problem.Error, Means: "An event lacks an attribute that every CloudEvent has."},
	{Code: "nul-escape", Severity: problem.Error, Means: "A text holds the character U+0000, which PostgreSQL cannot store."},
	{Code: "too-deep", Severity: problem.Error, Means: "A value is nested deeper than what is read; the bound keeps memory and time small."},
}
