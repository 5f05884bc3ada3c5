// SPDX-License-Identifier: Apache-2.0

package expect

import "example.com/bothy/engine/problem"

// Kinds are the codes that a test file can be refused with, beside those of every YAML file of the engine.
func Kinds() []problem.Kind {
	kind := func(code, means string) problem.Kind {
		return problem.Kind{Code: code, Severity: problem.Error, Means: means}
	}
	return []problem.Kind{
		kind("absent-handler", "A test looks at a consumer whose handler is Go of another program, so this one cannot say what it does."),
		kind("bad-event", "The database does not take an event of a test, so no log could ever hold it."),
		kind("bad-event-id", "The id of an event in a test is no UUID, and appending it would be refused."),
		kind("bad-event-type", "The type of an event in a test holds a blank or is too long, and appending it would be refused."),
		kind("bad-row", "The database does not take a row of a test: a column is missing, a value does not fit, or a constraint forbids it."),
		kind("bad-setup", "SQL of the setup is missing or refused, so the tables that the tests read are not there."),
		kind("bad-test-name", "The name of a test is not one short line, so that a report could not show it."),
		kind("bad-time", "A time in a test has no zone or is no time, so it would mean another moment on another machine."),
		kind("duplicate-test", "Two tests of a file have one name, so that a report could not tell them apart."),
		kind("missing-event", "An expected job does not say of which of several events it comes."),
		kind("missing-expectation", "A test expects neither jobs nor an error, so that it could never fail."),
		kind("no-such-event", "An expected job comes of an event that the test does not have."),
		kind("other-consumer", "An expected job is one of a consumer that its test does not look at."),
		kind("other-kind", "An expected job has a kind that its consumer never makes."),
		kind("two-expectations", "A test expects jobs and an error, and a round that fails creates no job."),
		kind("unclear-job", "An expected job can belong to several consumers."),
		kind("unknown-consumer", "A test names a consumer that the configuration does not declare."),
	}
}
