// SPDX-License-Identifier: Apache-2.0

package simulate

import "slices"

// point is a kind of statement: where a schedule can stop a session.
type point string

const (
	pointBegin    point = "BEGIN"
	pointSettings point = "set in_round"
	pointLock     point = "lock the cursor"
	pointRead     point = "read"
	pointReread   point = "read with the floor"
	pointRule     point = "recipients"
	pointSave     point = "SAVEPOINT"
	pointBack     point = "ROLLBACK TO SAVEPOINT"
	pointAside    point = "set the event aside"
	pointInsert   point = "insert jobs"
	pointAdvance  point = "advance the cursor"
	pointCommit   point = "COMMIT"
	pointRollback point = "ROLLBACK"
	pointEnsure   point = "make the cursors"
)

// points are those that a schedule likes to stop at: something of the promise is decided at each.
var points = []point{pointLock, pointRead, pointReread, pointRule, pointInsert, pointAdvance, pointCommit}

// statement is one that was sent. run gives what it did in words, for the trace.
type statement struct {
	point point
	free  func() bool // whether it need not wait for a row; nil never waits
	run   func(s *session) (did string, err error)
	apart bool // an error before it does not skip it: the client sent it in a round trip of its own
}

// session is one connection, with the server's end of it.
type session struct {
	db   *database
	name string

	tx      *transaction // nil outside of one
	saved   bool         // it has a savepoint
	aborted bool         // it failed: everything but its end is refused
	queue   []statement  // sent, not run yet
	err     error        // of the round trip
	tag     string       // of the last statement that ended a transaction
	code    string       // of an error that a schedule makes the next statement give

	cut   bool // the connection is broken: no reply arrives any more
	gone  bool // the client is gone: the server ends the session when it notices
	ended bool // the server ended it
}

// serverError is an error that the server answers with.
type serverError struct{ code string }

func (e *serverError) Error() string { return "SQLSTATE " + e.code }

// Transient is what the real store says of it.
func (e *serverError) Transient() bool { return e.code == codeDeadlock || e.code == codeLockTimeout }

// TooLarge is what the real store says of it.
func (e *serverError) TooLarge() bool { return e.code == codeTimeout }

// The SQLSTATEs that matter here.
const (
	codeDeadlock      = "40P01"
	codeLockTimeout   = "55P03"
	codeTimeout       = "57014"
	codeDiskFull      = "53100"
	codeInFailed      = "25P02" // the transaction has failed already
	codeCursorMoved   = "BT002"
	codeNoTransaction = "25P01"
	codePoison        = "22012" // the rule divides by zero
)

func (db *database) connect(name string) *session {
	s := &session{db: db, name: name}
	db.sessions = append(db.sessions, s)
	return s
}

// send begins a round trip.
func (s *session) send(batch []statement) { s.queue, s.err, s.tag = batch, nil, "" }

// ready reports whether the server can run the next statement now.
func (s *session) ready() bool {
	return !s.ended && len(s.queue) > 0 && (s.queue[0].free == nil || s.aborted || s.queue[0].free())
}

// next runs one statement. An error ends the round trip and leaves a transaction that accepts only its end.
func (s *session) next() (at point, did string, err error) {
	current := s.queue[0]
	s.queue = s.queue[1:]
	switch {
	case s.code != "":
		err = &serverError{s.code}
		s.code = ""
	case s.aborted && current.point != pointCommit && current.point != pointRollback && (current.point != pointBack || !s.saved):
		err = &serverError{codeInFailed}
	default:
		did, err = current.run(s)
	}
	if err == nil {
		return current.point, did, nil
	}
	if s.err == nil {
		s.err = err
	}
	s.queue = slices.DeleteFunc(s.queue, func(other statement) bool { return !other.apart })
	if s.tx != nil {
		s.aborted = true
		if !s.saved { // rows that were locked before a savepoint stay so
			s.db.release(s.tx)
		}
	}
	return current.point, "", err
}

// EventFault is what the real store says of it.
func (e *serverError) EventFault() (string, bool) { return e.Error(), e.code == codePoison }

// begin opens a transaction.
func (s *session) begin() {
	s.tx, s.aborted, s.saved = &transaction{who: s.name, inRound: -1}, false, false
}

// commit ends the transaction. That of a failed one is ROLLBACK, and no error.
func (s *session) commit(why reason) (string, error) {
	s.tag = "ROLLBACK"
	if s.tx != nil && !s.aborted {
		s.tag = "COMMIT"
		s.db.commit(s.tx, why)
	}
	s.tx, s.aborted, s.saved = nil, false, false
	return s.tag, nil
}

func (s *session) rollback() (string, error) {
	s.db.release(s.tx)
	s.tx, s.aborted, s.saved, s.tag = nil, false, false, "ROLLBACK"
	return s.tag, nil
}

// terminate ends the session from the server's side.
func (s *session) terminate() {
	s.db.release(s.tx)
	s.tx, s.aborted, s.queue, s.ended = nil, false, nil, true
	s.db.sessions = slices.DeleteFunc(s.db.sessions, func(other *session) bool { return other == s })
}
