// SPDX-License-Identifier: Apache-2.0

package statuspage

import "time"

// Facts are what the page shows. What is not known is null.
type Facts struct {
	Revision  string     `json:"revision"`    // of these facts; the page names it when it asks for newer ones
	SeenAt    *time.Time `json:"seen_at"`     // when the database was seen last, by the clock of this process
	Fresh     bool       `json:"fresh"`       // that is not too long ago to believe it
	Process   Process    `json:"process"`     //
	Log       Log        `json:"log"`         //
	Identity  Identity   `json:"identity"`    //
	JobsURL   string     `json:"jobs_url"`    // of a page that shows the jobs; empty when there is none
	RunsHere  bool       `json:"rounds_here"` // this process runs rounds, so it knows how they end
	Consumers []Consumer `json:"consumers"`
	History   *History   `json:"history,omitempty"` // absent where the client has all but the newest look
}

// Process is what the process knows of itself.
type Process struct {
	Role        string   `json:"role"`
	Version     string   `json:"version"`
	Environment string   `json:"environment"`
	Ready       bool     `json:"ready"`
	Reasons     []Reason `json:"reasons"`
}

// Reason is why the process is not ready: its name in /readyz, and what it means.
type Reason struct {
	Name  string `json:"name"`
	Means string `json:"means"`
}

// Log is the state of the event log.
type Log struct {
	Head             *int64     `json:"head"`
	Partitions       *int       `json:"partitions"`
	PartitionSize    int64      `json:"partition_size"`
	Headroom         *int64     `json:"headroom"`
	HeadroomWanted   int64      `json:"headroom_wanted"`
	RetentionSeconds float64    `json:"retention_seconds"`
	RetentionPolicy  string     `json:"retention_policy"`
	OldestSeq        *int64     `json:"oldest_seq"`
	OldestAt         *time.Time `json:"oldest_at"`
	OldestSeconds    *float64   `json:"oldest_seconds"` // its age, by the clock of the database
}

// The states of an identity.
const (
	IdentitySame     = "same"
	IdentityRestored = "restored"
	IdentityUnknown  = "unknown"
)

// Identity says whether the database is the one whose history the cursors follow.
type Identity struct {
	State   string    `json:"state"`
	Stored  *Database `json:"stored"`
	Current *Database `json:"current"`
	Epoch   string    `json:"epoch"`
}

// Database names one database of the world.
type Database struct {
	System   int64 `json:"system,string"`
	Timeline int64 `json:"timeline"`
}

// Consumer is where one consumer stands.
type Consumer struct {
	Name              string     `json:"name"`
	Declared          bool       `json:"declared"`
	State             State      `json:"state"`
	Kind              string     `json:"kind"`
	Cursor            *int64     `json:"cursor"`
	Lag               *int64     `json:"lag"`
	PendingSeconds    *float64   `json:"pending_seconds"`
	AlertAfterSeconds *float64   `json:"pending_alert_after_seconds"`
	MovedAt           *time.Time `json:"moved_at"` // when the cursor moved last, by the clock of the database
	End               *string    `json:"end"`      // of the newest round in this process
	EndedAt           *time.Time `json:"ended_at"`
	Failure           *Failure   `json:"failure"` // the last one in this process
}

// Failure is a row of rounds that failed, by kind: what an error says can quote an event.
type Failure struct {
	Kind   string    `json:"kind"` // error.type of the log
	End    string    `json:"end"`
	At     time.Time `json:"at"` // of the newest
	Since  time.Time `json:"since"`
	Rounds int       `json:"rounds"` // in a row
	Over   bool      `json:"over"`   // a later round ended well
}

// State is how a consumer is doing. The zero value is none.
type State string

// The states of a consumer.
const (
	StateCurrent    State = "current"    // it has processed everything
	StateWorking    State = "working"    // events wait, none of them for long
	StateFailing    State = "failing"    // its newest round failed
	StateLate       State = "late"       // an event waits for longer than pending_alert_after, and the cursor moves
	StateStalled    State = "stalled"    // the same, and the cursor has not moved for as long
	StateNew        State = "new"        // it is declared and has no cursor yet
	StateUndeclared State = "undeclared" // it has a cursor and is not declared any more
	StateUnknown    State = "unknown"    // the database has not been seen of late
)

// States are all states of a consumer.
func States() []State {
	return []State{StateCurrent, StateWorking, StateFailing, StateLate, StateStalled, StateNew, StateUndeclared, StateUnknown}
}

// Judge decides the state of a consumer from what else is known of it. now is the clock of the database.
func (c *Consumer) Judge(now time.Time, fresh bool) {
	late := c.PendingSeconds != nil && c.AlertAfterSeconds != nil && *c.PendingSeconds > *c.AlertAfterSeconds
	failing := c.Failure != nil && !c.Failure.Over
	switch {
	case !fresh:
		c.State = StateUnknown
	case !c.Declared:
		c.State = StateUndeclared
	case c.Cursor == nil && !failing:
		c.State = StateNew
	case late && c.MovedAt != nil && now.Sub(*c.MovedAt).Seconds() <= *c.AlertAfterSeconds:
		c.State = StateLate
	case late:
		c.State = StateStalled
	case failing:
		c.State = StateFailing
	case c.Lag != nil && *c.Lag > 0:
		c.State = StateWorking
	default:
		c.State = StateCurrent
	}
}
