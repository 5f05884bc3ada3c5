// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/restore"
)

// Action is what was done. The set is closed: the table refuses any other.
type Action string

// The actions on consumers. The subject of the deed is the name of the consumer before it.
const (
	ConsumerCreated Action = "consumer.created" // its cursor was made: LastSeq is where it starts
	ConsumerRenamed Action = "consumer.renamed" // its cursor was given the name To, at LastSeq
	ConsumerRetired Action = "consumer.retired" // its cursor, at LastSeq, was removed
	ConsumerLost    Action = "consumer.lost"    // it skipped the events First to Last, which retention had removed
	ConsumerSkipped Action = "consumer.skipped" // its cursor was moved over a hole, from First to Last
)

// The actions on events that a consumer has set aside. The subject is the name of the consumer.
const (
	QuarantineRetried Action = "quarantine.retried" // it was decided again, and has its jobs
	QuarantineDropped Action = "quarantine.dropped" // it was given up
)

// The actions on the installation. The subject of the deed is its id.
const (
	EnvironmentChanged Action = "instance.environment_changed" // its environment was From and became To
)

// The actions on the installation as a whole.
const (
	RestoreFinalized Action = "instance.restore_finalized" // a new epoch began at Head, and every cursor was moved there
	Relocated        Action = "instance.relocated"         // the identity of another server was stored
)

// Deed is one row of the audit about a consumer, or one that changed where all of them stand.
type Deed struct {
	Seq     int64     // of the audit, from 1, without a gap
	At      time.Time // the server's clock
	Action  Action
	Subject string
	Details DeedDetails
}

// DeedDetails are what else is written of a deed. What does not belong to its action is left out.
type DeedDetails struct {
	LastSeq *int64 `json:"last_seq,omitempty"` // where the cursor stood; nil when there was none
	First   int64  `json:"first,omitempty"`    // the first number that was lost or skipped
	Last    int64  `json:"last,omitempty"`     // and the last one
	Head    *int64 `json:"head,omitempty"`     // the head of the log at that moment
	From    string `json:"from,omitempty"`     // the former environment
	To      string `json:"to,omitempty"`       // the new name, or the new environment
	Seq     int64  `json:"seq,omitempty"`      // the event that was retried or dropped
	// Quarantined is how many events were given up with the cursor that was removed.
	Quarantined int64  `json:"quarantined,omitempty"`
	Reason      string `json:"reason,omitempty"` // as the person gave it
	By          string `json:"by,omitempty"`     // the account of the operating system that ran the command
	// Cursors are those that a finalized restore moved.
	Cursors []restore.Moved `json:"cursors,omitempty"`
}

// String says what was done, as the rest of a sentence that begins with the consumer.
func (d Deed) String() string {
	on := fmt.Sprintf("on %s (audit %d)", d.At.UTC().Format(time.RFC3339), d.Seq)
	switch d.Action {
	case ConsumerCreated:
		return "was created " + on
	case ConsumerRenamed:
		return fmt.Sprintf("was renamed to %q %s", d.Details.To, on)
	case ConsumerRetired:
		return "was retired " + on + ": " + printable(d.Details.Reason)
	case ConsumerLost:
		return "lost events to retention " + on
	case RestoreFinalized, Relocated:
		return "was restored " + on
	case ConsumerSkipped:
		return fmt.Sprintf("was moved over the numbers %d to %d %s: %s", d.Details.First, d.Details.Last, on, printable(d.Details.Reason))
	default:
		return string(d.Action) + " " + on
	}
}

// LastDeed is the newest deed done to the cursor of a consumer of that name, or the zero value.
func LastDeed(deeds []Deed, name string) (last Deed) {
	for _, d := range deeds {
		if d.Subject == name && d.Action != QuarantineDropped {
			last = d
		}
	}
	return last
}

// unknownName says what to do about names that the database does not let in. One that is gone for a reason
// must not come back by the way that a new one takes.
func unknownName(ctx context.Context, conn Querier, schema string, names []string, cause error) error {
	state, err := readCursors(ctx, conn, schema)
	if err != nil {
		return fmt.Errorf("a declared consumer is not known to the database, and which one cannot be read: %w", errors.Join(err, cause))
	}
	unknown := newNames(state.Known, names)
	for _, name := range unknown {
		if last := LastDeed(state.Deeds, name); last.Action == ConsumerRenamed || last.Action == ConsumerRetired {
			return fmt.Errorf("consumer %q %s: start the engine with the present consumers.yaml; for a new consumer of this name, which begins at the head, run `engine migrate up` first", name, last)
		}
	}
	if doubt := state.doubt(names); doubt != nil {
		return fmt.Errorf("%s: %s", doubt, doubt.Fix())
	}
	if len(unknown) == 0 { // somebody let it in meanwhile
		return failed("create the cursors", cause)
	}
	return fmt.Errorf("the database does not know the %s %s yet: run `engine migrate up` with this consumers.yaml", plural(len(unknown), "consumer"), quotedNames(unknown))
}

// appendAudit appends one deed to the audit, in the caller's transaction. It comes last there: every other
// deed waits until the transaction ends.
func appendAudit(ctx context.Context, tx pgx.Tx, schema string, action Action, subject string, details DeedDetails) (seq int64, err error) {
	text, err := json.Marshal(details)
	if err != nil {
		return 0, fmt.Errorf("write the details of %s: %w", action, err)
	}
	err = tx.QueryRow(ctx, `SELECT `+quote(schema)+`.append_audit($1, $2, $3)`, string(action), subject, string(text)).Scan(&seq)
	return seq, failed("append to the audit", err)
}

// consumerDeeds are all deeds about consumers and about the events that they gave up, and the restores that were
// finalized, in their order.
func consumerDeeds(ctx context.Context, conn Querier, schema string) ([]Deed, error) {
	rows, err := conn.Query(ctx, `SELECT seq, `+sqlInstant("at")+`, action, subject, details FROM `+quote(schema)+`.audit_events
WHERE action LIKE 'consumer.%' OR action IN ('quarantine.dropped', $1) ORDER BY seq`, string(RestoreFinalized))
	if err != nil {
		return nil, failed("read the audit", err)
	}
	deeds, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d Deed, err error) {
		var at string
		if err = row.Scan(&d.Seq, &at, &d.Action, &d.Subject, &d.Details); err == nil {
			d.At, err = instant(at)
		}
		return d, err
	})
	return deeds, failed("read the audit", err)
}

// printable is a text of a person's in one line: what moves the cursor of a terminal or turns a text round stands in it
// as in a Go string.
func printable(text string) string {
	if strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return strconv.Quote(text)
	}
	return text
}
