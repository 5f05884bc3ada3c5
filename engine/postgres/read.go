// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/bothy/engine/round"
)

// columns are those of an event that a consumer needs beside the number and the trace. No round reads a payload here: a
// handler gets it later, for the events that are its own.
type columns struct {
	kind, resource, resourceID, audience, size bool
	jobs                                       int // audiences are read until their recipients are that many
}

// columnsOf is what the rule and the types of a consumer look at.
func columnsOf(c round.Consumer) columns {
	need := columns{kind: len(c.Types) > 0}
	switch c.Rule.Kind {
	case round.RuleField:
		switch c.Rule.Field {
		case "type":
			need.kind = true
		case "resource":
			need.resource = true
		case "resource_id":
			need.resourceID = true
		case "audience":
			need.audience, need.jobs = true, c.MaxJobs
		}
	case round.RuleHandler:
		need.size = true
	case round.RuleNone, round.RuleList, round.RuleQuery:
	}
	return need
}

// list is the columns in the order of scanSnapshot.
func (c columns) list() []string {
	names := []string{"e.seq", "e.traceparent"}
	for _, column := range []struct {
		need bool
		name string
	}{
		{c.kind, "e.type"},
		{c.resource, "e.resource"},
		{c.resourceID, "e.resource_id"},
		{c.audience, "e.audience"},
		{c.audience, "e.fits"},
		{c.size, sqlSize},
		{c.size, sqlPacked},
	} {
		if column.need {
			names = append(names, column.name)
		}
	}
	return names
}

// readStatement is the text of the two reads of a round.
type readStatement struct {
	columns
	bounded   string // from the cursor on, one batch of numbers, within a window: touches one partition or two
	withFloor string // the next events wherever they are, and the floor
	one       string // the event with a number: for what is no round
}

// headerColumns is how many columns of a row describe the snapshot rather than an event.
const headerColumns = 11

// readStatement writes the reads for a set of columns. Each is ONE statement, so that cursor, head, epoch,
// identity and events come from one snapshot; the head never bounds the events, since a number above
// it is a hole that must be seen. The planner has no statistics of tables with one row and guesses
// thousands: LIMIT 1 tells it.
func (s *Store) readStatement(need columns) readStatement {
	system, timeline := s.currentIdentity()
	events := strings.Join(need.list(), ", ")
	fitting, fitted := "", ""
	if need.audience {
		fitting, fitted = need.fitting()
	}
	read := func(floor, where string) string {
		return `SELECT at.*, e.* FROM (
	SELECT c.last_seq, h.seq AS head, h.upper_bound - 1 - h.seq AS room, ` + floor + ` AS floor, i.sync_epoch, i.pg_system_identifier, i.pg_timeline_id::bigint, i.pg_database_oid, ` + system + ` AS system, ` + timeline + ` AS timeline, ` + sqlDatabase + ` AS database
	FROM ` + s.schema + `.event_consumer_cursors c CROSS JOIN (SELECT * FROM ` + s.schema + `.event_seq LIMIT 1) h CROSS JOIN (SELECT * FROM ` + s.schema + `.instance LIMIT 1) i
	WHERE c.name = $1
) at LEFT JOIN LATERAL (
	` + cmp.Or(fitting, `SELECT `+events) + ` FROM ` + s.schema + `.event_log e
	WHERE e.seq ` + where + fitted + `
) e ON true`
	}
	return readStatement{
		columns:   need,
		bounded:   read("NULL::bigint", `> at.last_seq AND e.seq <= at.last_seq + $2::bigint AND e.seq > $3::bigint AND e.seq <= $4::bigint ORDER BY e.seq LIMIT $2::bigint`),
		withFloor: read(`(SELECT seq FROM `+s.schema+`.event_log ORDER BY seq LIMIT 1)`, `> at.last_seq ORDER BY e.seq LIMIT $2::bigint`),
		one:       read("NULL::bigint", `= $2::bigint`),
	}
}

// audienceBytes bounds what the audiences that one round reads take, beyond those of one event.
const audienceBytes = 4 << 20

// fitting is what stands around the read of events with audiences: those after the event that reaches the limit of
// jobs, or the bound of bytes, are not sent, since the round would throw them away. How large they are is asked
// of those alone whose compressed sizes are within the bound: telling means unpacking.
func (c columns) fitting() (before, after string) {
	const above = ` OVER (ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)`
	kept := "e.seq, e.traceparent"
	if c.kind {
		kept = "e.seq, e.traceparent, e.type"
	}
	before = fmt.Sprintf(`SELECT %[1]s, CASE WHEN e.fits THEN e.audience END AS audience, e.fits FROM (
	SELECT %[1]s, e.audience, e.packed < %[2]d AND coalesce(sum(e.jobs)%[3]s < %[4]d AND coalesce(sum(e.bytes)%[3]s < %[2]d AS fits FROM (
	SELECT e.*, CASE WHEN e.packed < %[2]d THEN cardinality(e.audience) END AS jobs, CASE WHEN e.packed < %[2]d THEN
		CASE WHEN pg_column_compression(e.audience) IS NULL THEN pg_column_size(e.audience) ELSE octet_length(e.audience::text) END + 16 * cardinality(e.audience) END AS bytes FROM (
	SELECT %[1]s, e.audience, coalesce(sum(pg_column_size(e.audience))%[3]s AS packed FROM (
	SELECT %[1]s, e.audience`, kept, audienceBytes, above, c.jobs)
	return before, `) e) e) e) e`
}

// scanSnapshot reads the rows of a readStatement: the description of the snapshot from the first, an event
// from each. found is false when the consumer has no cursor row.
func (s *Store) scanSnapshot(rows pgx.Rows, read readStatement) (snapshot round.Snapshot, sizes sizes, found bool, err error) {
	defer rows.Close()
	snapshot.Guarded = s.options.RestoreGuard
	var floor, storedSystem, storedTimeline, storedDatabase, system, timeline, database, seq pgtype.Int8
	var epoch pgtype.UUID
	header := []any{&snapshot.Cursor, &snapshot.Head, &snapshot.Room, &floor, &epoch, &storedSystem, &storedTimeline, &storedDatabase, &system, &timeline, &database}
	skip := make([]any, headerColumns)
	var e round.Event
	var trace, kind, resource, resourceID pgtype.Text
	var bytes pgtype.Int8
	var packed, fits pgtype.Bool
	event := []any{&seq, &trace}
	for _, column := range []struct {
		need bool
		into any
	}{
		{read.kind, &kind},
		{read.resource, &resource},
		{read.resourceID, &resourceID},
		{read.audience, &e.Audience},
		{read.audience, &fits},
		{read.size, &bytes},
		{read.size, &packed},
	} {
		if column.need {
			event = append(event, column.into)
		}
	}
	into := append(header, event...) //nolint:gocritic // the first row fills both
	for rows.Next() {
		e = round.Event{}
		if err := rows.Scan(into...); err != nil {
			return snapshot, nil, false, err
		}
		found = true
		copy(into, skip)
		if !seq.Valid {
			continue
		}
		e.Seq, e.Traceparent, e.Type, e.Resource, e.ResourceID = seq.Int64, trace.String, kind.String, resource.String, resourceID.String
		if fits.Valid && !fits.Bool && snapshot.Whole == 0 {
			snapshot.Whole = e.Seq - 1
		}
		snapshot.Events = append(snapshot.Events, e)
		if read.size {
			sizes = append(sizes, size{e.Seq, bytes.Int64, packed.Bool})
		}
	}
	snapshot.Floor = floor.Int64
	snapshot.Epoch = epoch.String()
	snapshot.Stored = round.Identity{System: storedSystem.Int64, Timeline: storedTimeline.Int64, Database: storedDatabase.Int64}
	snapshot.Current = round.Identity{System: system.Int64, Timeline: timeline.Int64, Database: database.Int64}
	return snapshot, sizes, found, rows.Err()
}
