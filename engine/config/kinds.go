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
		refusal("bad-handler", "The name of a handler is not one that a program can register."),
		refusal("bad-kind", "A kind of job is not one that River takes: a client with a worker for it would not start, and no worker would ever take the job."),
		refusal("bad-label", "The label of an installation holds a character that is not taken, or is too long."),
		refusal("bad-name", "The name of a consumer cannot be both the key of its cursor and the tag of its River jobs."),
		refusal("bad-pattern", "A pattern on the event type is not one: it is empty, too long, or holds a blank."),
		refusal("bad-query", "The query of a recipient rule cannot be one SELECT over the relation batch. Only the server can say more."),
		refusal("bad-queue", "The name of a queue is not one that River takes: no client could work it."),
		refusal("bad-recipient", "A fixed recipient is a text that a job cannot hold."),
		refusal("bad-role", "The name of a database role cannot be one, or is one that PostgreSQL keeps for itself."),
		refusal("bad-schema", "The name of a schema cannot be one, or is one that PostgreSQL keeps for itself."),
		refusal("bad-url", "The connection to a database can be read neither as a URL nor as key=value pairs. Its text is never shown: it may hold a password."),
		refusal("duplicate-name", "Two consumers have one name. Both would move one cursor, and each would lose the events that the other took."),
	}...)
	slices.SortFunc(kinds, func(a, b problem.Kind) int { return strings.Compare(a.Code, b.Code) })
	return kinds
}

func refusal(code, means string) problem.Kind {
	return problem.Kind{Code: code, Severity: problem.Error, Means: means}
}
