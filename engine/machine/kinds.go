// SPDX-License-Identifier: Apache-2.0

package machine

import "example.com/bothy/engine/problem"

// kinds are all codes that this room reports, by code.
var kinds = []problem.Kind{
	{Code: "answer-to-cancelled", Severity: problem.Error, Means: "An answer leads to the end of a cancelled run: who sees that end must be able to trust that somebody asked the run to stop."},
	{Code: "bad-anywhere", Severity: problem.Error, Means: "What follows a step that broke off is not an end that rolls back, or tells an error as none: half of the work would stay, or nobody would see it."},
	{Code: "bad-argument", Severity: problem.Error, Means: "A table gives a step an argument in a form or with a word that the step does not take."},
	{Code: "bad-case", Severity: problem.Error, Means: "A case cannot be played: its answers are too few or too many, or name a place that its path never comes to."},
	{Code: "bad-message", Severity: problem.Error, Means: "The message of a log record is not one line: a message is constant, so that it can be searched for and alerted on."},
	{Code: "bad-name", Severity: problem.Error, Means: "A name has characters that names do not have: names appear in logs, metrics and diagrams."},
	{Code: "bad-promise", Severity: problem.Error, Means: "A promise does not say about which paths it speaks, or says nothing about them, so it could never be broken."},
	{Code: "bad-target", Severity: problem.Error, Means: "An answer leads to something that is neither the name of a state nor the word end and the name of an end."},
	{Code: "bad-yaml", Severity: problem.Error, Means: "The file is no YAML, so nothing in it is known."},
	{Code: "broken-promise", Severity: problem.Error, Means: "A path of the table does what a promise excludes. The path is printed with what each step does, and with what it would cost if the table ran."},
	{Code: "cycle", Severity: problem.Error, Means: "States lead back to each other, so a run might never end."},
	{Code: "duplicate-case", Severity: problem.Error, Means: "Two cases of one file have the same name, so a report could not say which one failed."},
	{Code: "duplicate-key", Severity: problem.Error, Means: "A key stands twice in one mapping, and only one of the two could count."},
	{Code: "duplicate-machine", Severity: problem.Error, Means: "Two tables of one folder are the same machine, and only one of them could run."},
	{Code: "duplicate-promise", Severity: problem.Error, Means: "A promise is stated twice: an edit of one would look like an edit of both."},
	{Code: "duplicate-word", Severity: problem.Error, Means: "A list of a promise names the same thing twice, which means something only where the order counts."},
	{Code: "edge-beside-failure", Severity: problem.Error, Means: "An end has an edge and a failure, and a failure always enters the failing state, so the edge would mean nothing."},
	{Code: "empty-file", Severity: problem.Error, Means: "The file holds nothing at all."},
	{Code: "empty-list", Severity: problem.Error, Means: "A list or a mapping is empty where it says nothing then."},
	{Code: "failed-case", Severity: problem.Error, Means: "A case was played and came out otherwise than it says: the table changed its meaning, or the case is wrong."},
	{Code: "idle-promise", Severity: problem.Error, Means: "A promise is about a transaction that no end has, so it is about no path and could never be broken."},
	{Code: "missing-answer", Severity: problem.Error, Means: "A state does not say where an answer of its step leads: a run that gets this answer could not go on."},
	{Code: "missing-argument", Severity: problem.Error, Means: "A step is run without an argument that it needs."},
	{Code: "missing-key", Severity: problem.Error, Means: "A key that has no default is not there."},
	{Code: "missing-promise", Severity: problem.Error, Means: "The table does not state a promise that the engine lives by, or states less: these cannot be removed or weakened, in any table."},
	{Code: "no-cases", Severity: problem.Warning, Means: "A table has no file of cases beside it, so a change of what it does is proven safe and not seen to be meant."},
	{Code: "no-table", Severity: problem.Error, Means: "A folder that should hold tables holds none."},
	{Code: "second-document", Severity: problem.Error, Means: "The file holds a second YAML document, of which nothing would be read."},
	{Code: "stray-cases", Severity: problem.Error, Means: "A file of cases has no table beside it, so nothing plays its cases."},
	{Code: "too-large", Severity: problem.Error, Means: "A file or a list is larger than what is read: the bound keeps the proof fast whatever the input."},
	{Code: "unknown-answer", Severity: problem.Error, Means: "A table or a case handles an answer that the step never gives, most likely a slip of the hand for one that it does give."},
	{Code: "unknown-argument", Severity: problem.Error, Means: "A table gives a step an argument that the step does not take, and that would be ignored."},
	{Code: "unknown-end", Severity: problem.Error, Means: "An end is named that the table does not have, or that the machine does not know: metrics, alerts and promises know ends by name."},
	{Code: "unknown-failure", Severity: problem.Error, Means: "An end has a failure that the program cannot tell, so no alert would know it."},
	{Code: "unknown-in-promise", Severity: problem.Error, Means: "A promise names a step, an answer, a state, an end or a failure that does not exist, so it could not hold or break."},
	{Code: "unknown-key", Severity: problem.Error, Means: "A key is not known here, and what it says would be ignored."},
	{Code: "unknown-machine", Severity: problem.Error, Means: "A table is for a machine that this program does not run."},
	{Code: "unknown-state", Severity: problem.Error, Means: "A state is named that the table does not have."},
	{Code: "unknown-step", Severity: problem.Error, Means: "A step is named that the program does not have."},
	{Code: "unknown-word", Severity: problem.Error, Means: "A word stands where only some words mean something."},
	{Code: "unreachable-end", Severity: problem.Error, Means: "No path comes to an end, so what it says never happens."},
	{Code: "unreachable-state", Severity: problem.Error, Means: "No path comes to a state, so its step never runs."},
	{Code: "untested-path", Severity: problem.Warning, Means: "No case walks a path of the table, so nobody has said what should come of it."},
	{Code: "wrong-kind", Severity: problem.Error, Means: "A value is of another kind than it must be: text, a list or a mapping."},
	{Code: "wrong-machine", Severity: problem.Error, Means: "A file says that it is for another machine than the one that it is read for."},
}

// Kinds are all codes that this room reports, by code, with what they mean.
func Kinds() []problem.Kind { return append([]problem.Kind(nil), kinds...) }
