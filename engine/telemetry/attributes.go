// SPDX-License-Identifier: Apache-2.0

package telemetry

// AttrErrorType is the log attribute that says what kind of error it was, from a closed set.
const AttrErrorType = "error.type"

// AttrDuration is the log attribute that says how long a condition lasted that has just ended.
const AttrDuration = "duration"

// Attribute is an attribute that a log record or a span of the engine may have.
type Attribute struct{ Name, Means string }

// LogAttributes are all of them. A record carries no payload, no recipient and no text of an error, which can
// quote both; error.message appears at level debug only.
func LogAttributes() []Attribute {
	return []Attribute{
		{AttrConsumer, "The name of a consumer."},
		{"bothy.consumer.duration", "How long the state lasted that has just ended."},
		{"bothy.event.seq", "The number of an event."},
		{"bothy.hold.advice", "What to do so that the engine works again."},
		{"bothy.hold.duration", "How long the engine did no work."},
		{"bothy.identity.current", "The server that answered: its system identifier and its timeline."},
		{"bothy.identity.stored", "The server whose history the cursors follow."},
		{"bothy.outage.duration", "How long the database could not be reached."},
		{AttrErrorType, "The kind of an error: `consumer_gap`, `consumer_ahead`, `cursor_missing`, `cursor_locked`, `restore_not_finalized`, `identity_unreadable`, `database_in_recovery`, `environment_differs`, `panic`, `rule`, `handler`, `timeout`, `connection`, `export`, a SQLSTATE of the server, or `error`."},
		{"error.message", "The text of an error, at level `debug` only: it can quote what an event holds."},
		{AttrDuration, "How long a condition lasted that has just ended and is neither of a consumer nor an outage."},
		{"role", "The role of the process."},
		{"consumers", "How many consumers are declared, or the names of those that have still to read."},
		{"sessions", "How many sessions of frozen engines were ended."},
		{"address", "Where the HTTP listener listens."},
		{"until", "Until when a partition is kept for consumers."},
		{"partitions", "How many partitions were dropped."},
		{"first", "The first number of what is dropped or kept."},
		{"last", "The last number of what is dropped or kept."},
	}
}
