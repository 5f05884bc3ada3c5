// SPDX-License-Identifier: Apache-2.0

package api

// Reason is why a process is not ready. The zero value is none.
type Reason string

// The reasons.
const (
	Starting         Reason = "starting"                // it checks the consumers and makes what they need
	Stopping         Reason = "stopping"                // it was told to stop; rounds that run finish
	Unreachable      Reason = "database_unreachable"    // the database takes no connection
	Unobserved       Reason = "database_unobserved"     // the database answers, and does not say where the consumers stand
	Unfinalized      Reason = "restore_not_finalized"   // the database was restored or promoted: no rounds run
	Unreadable       Reason = "identity_unreadable"     // it may not read which server this is: no rounds run
	Recovering       Reason = "database_in_recovery"    // the database replays a log: nothing can be written
	OtherEnvironment Reason = "environment_differs"     // the database is called otherwise than the file says: no rounds run
	SchemaTooOld     Reason = "schema_too_old"          // the database lacks a migration that this binary needs
	BinaryTooOld     Reason = "binary_too_old"          // the database was migrated past this binary
	ConsumersFailed  Reason = "consumer_checks_failing" // a recipient rule does not fit the database or the program
)

// Means says a reason in words.
func (r Reason) Means() string {
	switch r {
	case Starting:
		return "the engine checks the consumers and makes what they need"
	case Stopping:
		return "the engine was told to stop; rounds that run finish"
	case Unreachable:
		return "the database cannot be reached"
	case Unobserved:
		return "the database does not say where the consumers stand"
	case Unfinalized:
		return "the database was restored or promoted, and no round runs before that is finalized"
	case Unreadable:
		return "the role may not read which server this is, so a restore would not be noticed, and no round runs"
	case Recovering:
		return "the database replays a log: it is a standby, or a restore that is not at its end"
	case OtherEnvironment:
		return "the database belongs to another environment, and no round runs"
	case SchemaTooOld:
		return "the database lacks a migration that this engine needs"
	case BinaryTooOld:
		return "the database was migrated past this engine"
	case ConsumersFailed:
		return "a recipient rule does not fit the database or the program"
	}
	return string(r)
}

// Reasons are all reasons, in the order in which they are told.
func Reasons() []Reason {
	return []Reason{Starting, Stopping, Unreachable, Unobserved, Unfinalized, Unreadable, Recovering, OtherEnvironment, SchemaTooOld, BinaryTooOld, ConsumersFailed}
}
