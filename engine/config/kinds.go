// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"

	"example.com/bothy/engine/document"
	"example.com/bothy/engine/problem"
)

// Kinds lists every kind of problem that a consumers.yaml can have without a look at a database, by code.
func Kinds() []problem.Kind {
	kinds := append(document.Kinds(), []problem.Kind{
		refusal("bad-column", "The name of a column of restore.cursors cannot be one."),
		refusal("bad-condition", "The condition of restore.cursors cannot stand after WHERE on its own. Only the server can say more."),
		refusal("bad-table", "A table of restore.cursors is not written as schema.table, or lies where PostgreSQL keeps its own."),
		refusal("own-table", "An entry of restore.cursors names a table of the engine's own. A finalize moves the engine's cursors by itself, and would write a position over what is none."),
		refusal("duplicate-cursor", "Two entries of restore.cursors name the same column of the same table. Finalizing would move its rows twice, and count them twice."),
		refusal("bad-handler", "The name of a handler is not one that a program can register."),
		refusal("bad-kind", "A kind of job is not one that River takes: a client with a worker for it would not start, and no worker would ever take the job."),
		refusal("bad-label", "The label of an installation holds a character that is not taken, or is too long."),
		refusal("bad-link", "The address of the page that shows the jobs is not one that a browser can open, or holds a password."),
		refusal("bad-listen", "The address of the HTTP listener is not a host and a port."),
		refusal("bad-name", "The name of a consumer cannot be both the key of its cursor and the tag of its River jobs."),
		refusal("bad-path", "A text is not the path of a file."),
		refusal("bad-pattern", "A pattern on the event type is not one: it is empty, too long, or holds a blank."),
		refusal("bad-query", "The query of a recipient rule cannot be one SELECT over the relation batch. Only the server can say more."),
		refusal("bad-queue", "The name of a queue is not one that River takes: no client could work it."),
		refusal("bad-recipient", "A fixed recipient is a text that a job cannot hold."),
		refusal("bad-role", "The name of a database role cannot be one, or is one that PostgreSQL keeps for itself."),
		refusal("bad-schema", "The name of a schema cannot be one, or is one that PostgreSQL keeps for itself."),
		refusal("bad-token", "The token of the status page is too short to be safe, or cannot be sent in a header. Its text is never shown."),
		refusal("bad-url", "The connection to a database can be read neither as a URL nor as key=value pairs, or one of its parameters cannot be what it is. Its text is never shown: it may hold a password."),
		hint("covered-pattern", "A pattern on the event type takes nothing that another pattern of the consumer does not take: one of the two may be a mistake."),
		refusal("duplicate-name", "Two consumers have one name. Both would move one cursor, and each would lose the events that the other took."),
		refusal("idle-after", "A number of failures is given that nothing waits for: only a consumer with on_failure: quarantine sets an event aside after it."),
		hint("idle-policy", "A consumer would set aside events that its rule fails on, and its rule fails on none: only a query or a handler can."),
		refusal("late-alert", "A consumer would count as late only after its events are dropped. pending_alert_after is strictly below sync.event_retention, so that there is time to help."),
		hint("literal-pattern", "A pattern on the event type holds a character that is a pattern elsewhere and stands for itself here."),
		hint("odd-parameter", "The connection to a database has a parameter that neither the driver nor PostgreSQL is known to take, and that is a slip away from one they take. The server refuses a connection that asks for a parameter it does not know."),
		hint("repeated-select", "A query joins one SELECT to itself by UNION ALL, so that it gives every target twice. The engine makes one job of them; the query costs twice."),
		hint("same-kind", "Consumers make jobs of one kind. One worker gets them all, and only the tag of a job says which consumer made it."),
		hint("similar-entry", "A list holds two recipients that differ only in case or in blanks around them. They are two to the engine, and each gets a job."),
		hint("similar-name", "Two consumers have names that differ only in - and _, and are easily taken for each other in a dashboard or a command."),
		hint("slow-poll", "When a wake is lost, a consumer counts as late before it looks at the log again. poll_interval is best well below pending_alert_after."),
		hint("small-partition", "A partition of the event log holds fewer events than one round may read, so that every full round reads from several."),
		hint("small-pool", "The connection pool is smaller than what all consumers can use at once, so that rounds wait for each other. Nothing is lost."),
	}...)
	slices.SortFunc(kinds, func(a, b problem.Kind) int { return strings.Compare(a.Code, b.Code) })
	return kinds
}

func hint(code, means string) problem.Kind {
	return problem.Kind{Code: code, Severity: problem.Warning, Means: means}
}

func refusal(code, means string) problem.Kind {
	return problem.Kind{Code: code, Severity: problem.Error, Means: means}
}
