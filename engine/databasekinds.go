// SPDX-License-Identifier: Apache-2.0

package engine

import "example.com/bothy/engine/problem"

// DatabaseKinds are the problems that only the database, or the program that embeds the engine, can show.
func DatabaseKinds() []problem.Kind {
	return []problem.Kind{
		{Code: "bad-cursor-table", Severity: problem.Error, Means: "A table of restore.cursors is not there, or its column or condition is not one that a finalize could use: it would fail when it is needed."},
		{Code: "bad-encoding", Severity: problem.Error, Means: "The database does not store UTF-8, which events are."},
		{Code: "bad-rule", Severity: problem.Error, Means: "PostgreSQL does not accept the query of a consumer, so no round of it could run."},
		{Code: "bad-rule-columns", Severity: problem.Error, Means: "A query does not give the columns seq, a whole number, and recipient, a text: what a round would store is not what is meant."},
		{Code: "blind-guard", Severity: problem.Error, Means: "The role of the engine may not read which server this is. What cannot be read is neither the same nor another, so the engine does no work until it may, or until database.restore_guard is off."},
		{Code: "closed-cursor-table", Severity: problem.Warning, Means: "Neither the owner of the schema nor the administrator of the configuration may change a table of restore.cursors, so a finalize would fail."},
		{Code: "counter-behind", Severity: problem.Error, Means: "The event log holds a number above its counter, as a partial restore leaves it: appending fails."},
		{Code: "few-partitions", Severity: problem.Warning, Means: "Fewer partitions stand ready after the one in use than sync.partitions_ahead asks for."},
		{Code: "hidden-rows", Severity: problem.Warning, Means: "Row-level security hides rows of a table from the role that reads it, so a query leaves recipients out without a word; an error when it hides all of them."},
		{Code: "large-scan", Severity: problem.Warning, Means: "A query reads a large table from end to end in every round, however few events there are."},
		{Code: "missing-migration", Severity: problem.Error, Means: "The database lacks tables or functions that this engine needs."},
		{Code: "missing-right", Severity: problem.Error, Means: "A role lacks a right without which the engine or its producers cannot work."},
		{Code: "missing-role", Severity: problem.Error, Means: "A role that database.roles names is not on the server."},
		{Code: "missing-row", Severity: problem.Error, Means: "The one row of the counter or of the identity of the installation is gone, as a partial restore leaves it: no round runs."},
		{Code: "never-analysed", Severity: problem.Warning, Means: "A query reads a table of which the server has no numbers, so that it guesses how to read it."},
		{Code: "new-server", Severity: problem.Warning, Means: "The server is newer than every one that this engine was tested on."},
		{Code: "no-connection", Severity: problem.Error, Means: "The connection of the engine itself cannot be made, so it cannot run, whatever an administrator's connection shows."},
		{Code: "no-partition", Severity: problem.Error, Means: "The event log has no partition for its next number: appending fails."},
		{Code: "not-looked-at", Severity: problem.Warning, Means: "Something could not be checked with this connection, and the sentence says what."},
		{Code: "old-engine", Severity: problem.Error, Means: "A newer engine has migrated the database to where this one would do harm."},
		{Code: "old-river", Severity: problem.Error, Means: "River's tables in jobs.schema are missing or older than this engine inserts into."},
		{Code: "old-server", Severity: problem.Error, Means: "The server is older than PostgreSQL 15."},
		{Code: "other-environment", Severity: problem.Error, Means: "The database belongs to another environment than the file says: this is probably the wrong database."},
		{Code: "other-history", Severity: problem.Error, Means: "The server was restored or promoted since the cursors last moved, and no round runs before that is settled."},
		{Code: "other-role", Severity: problem.Warning, Means: "The engine would connect as another role than the one that rights are given to."},
		{Code: "pooled-connection", Severity: problem.Warning, Means: "A connection that has to be a session of the server's own leads through a pooler in transaction mode."},
		{Code: "quoted-recipient", Severity: problem.Warning, Means: "A query casts JSON to text, so each recipient is written with the quotes of JSON and nobody has that name."},
		{Code: "removed-consumer", Severity: problem.Warning, Means: "A cursor lives on whose consumer is no longer declared."},
		{Code: "renamed-consumer", Severity: problem.Warning, Means: "A cursor has no consumer and one new consumer has no cursor: as a rename it would begin at the head and skip events."},
		{Code: "rule-writes", Severity: problem.Error, Means: "A query tries to write or lock, and it may only read."},
		{Code: "standby", Severity: problem.Error, Means: "The server is a standby, where nothing can be written."},
		{Code: "unknown-column", Severity: problem.Error, Means: "A query reads a column that is not there."},
		{Code: "unknown-handler", Severity: problem.Error, Means: "A rule names a Go function that this program has not registered."},
		{Code: "unknown-name", Severity: problem.Error, Means: "The database does not know a declared consumer yet, so it can have no cursor."},
		{Code: "unknown-relation", Severity: problem.Error, Means: "A query reads a table or a schema that is not there."},
		{Code: "unreadable-relation", Severity: problem.Error, Means: "The role of the engine lacks the right on something that a query reads or calls; a warning when it has the right on some columns."},
		{Code: "volatile-rule", Severity: problem.Warning, Means: "A query calls a function that may answer differently each time, so nobody can tell later who should have got a job."},
	}
}
