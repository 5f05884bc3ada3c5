// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/bothy/engine/round"
)

// handlerBytes bounds what the events take that are read for a handler at a time. An event that is larger is
// read alone. What the driver holds while it reads comes on top.
const handlerBytes = 4 << 20

// sqlSize and sqlPacked tell what an event e takes, and whether that is compressed, without unpacking anything.
const (
	sqlSize = `(200 + pg_column_size(e.payload) + pg_column_size(e.audience) + pg_column_size(e.resource) + pg_column_size(e.resource_id))::bigint`

	sqlPacked = `(pg_column_compression(e.payload) IS NOT NULL OR pg_column_compression(e.audience) IS NOT NULL
		OR pg_column_compression(e.resource) IS NOT NULL OR pg_column_compression(e.resource_id) IS NOT NULL)`

	sqlUnpackedSize = `(200 + octet_length(e.payload::text) + octet_length(e.audience::text) + octet_length(e.resource) + octet_length(e.resource_id))::bigint`
)

// mostPacked is by how much the server's compression shrinks at best.
const mostPacked = 255

// size is what an event takes.
type size struct {
	seq    int64
	bytes  int64
	packed bool // bytes is the compressed size
}

// bound is the most that the event can take in memory.
func (s size) bound() int64 {
	if s.packed {
		return s.bytes * mostPacked
	}
	return s.bytes
}

// sizes are those of events in the order of their numbers.
type sizes []size

// of keeps the sizes of some of the events. An event without a known size is still one of them, and is read
// alone.
func (s sizes) of(events []round.Event) sizes {
	kept := make(sizes, 0, len(events))
	for _, e := range events {
		i, ok := slices.BinarySearchFunc(s, e.Seq, func(s size, seq int64) int { return int(min(max(s.seq-seq, -1), 1)) })
		if !ok {
			kept = append(kept, size{seq: e.Seq, bytes: handlerBytes})
			continue
		}
		kept = append(kept, s[i])
	}
	return kept
}

// first is how many of the events are read together: as many as fit, at least one.
func (s sizes) first() int {
	total := int64(0)
	for i, one := range s {
		if total += one.bound(); total > handlerBytes && i > 0 {
			return i
		}
	}
	return len(s)
}

// whole reads events with everything that belongs to them, a part at a time.
type whole struct {
	store *Store
	conn  *pgx.Conn
	left  sizes
}

// next is the next part, or nothing at the end. Where compression hides how large events are, it first asks the
// server, which has to unpack them for that.
func (w *whole) next(ctx context.Context) ([]round.Event, error) {
	if len(w.left) == 0 {
		return nil, nil
	}
	n := w.left.first()
	if n < len(w.left) && slices.ContainsFunc(w.left[:n+1], func(s size) bool { return s.packed }) {
		if err := w.unpack(ctx); err != nil {
			return nil, err
		}
		n = w.left.first()
	}
	part := w.left[:n]
	w.left = w.left[n:]
	where, args := among(part)
	rows, err := w.conn.Query(ctx, `SELECT e.seq, e.type, e.resource, e.resource_id, e.audience, e.id::text, e.payload, e.occurred_at, e.event_time, e.traceparent
FROM `+w.store.schema+`.event_log e WHERE `+where+` ORDER BY e.seq`, args...)
	if err != nil {
		return nil, failed("read the events of a handler", err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e round.Event, err error) {
		var at pgtype.Timestamptz
		var trace pgtype.Text
		err = row.Scan(&e.Seq, &e.Type, &e.Resource, &e.ResourceID, &e.Audience, &e.ID, &e.Payload, &e.OccurredAt, &at, &trace)
		e.EventTime, e.Traceparent = at.Time, trace.String
		return e, err
	})
	if err == nil && len(events) != n {
		err = fmt.Errorf("the log held %d events and now holds %d of them", n, len(events))
	}
	return events, failed("read the events of a handler", err)
}

// unpack replaces the compressed sizes of what is left.
func (w *whole) unpack(ctx context.Context) error {
	packed := make(sizes, 0, len(w.left))
	for _, s := range w.left {
		if s.packed {
			packed = append(packed, s)
		}
	}
	where, args := among(packed)
	rows, err := w.conn.Query(ctx, `SELECT e.seq, `+sqlUnpackedSize+` FROM `+w.store.schema+`.event_log e WHERE `+where, args...)
	if err != nil {
		return failed("ask how large events are", err)
	}
	unpacked := make(map[int64]int64, len(packed))
	var seq, bytes int64
	_, err = pgx.ForEachRow(rows, []any{&seq, &bytes}, func() error { unpacked[seq] = bytes; return nil })
	for i, s := range w.left {
		if bytes, ok := unpacked[s.seq]; ok {
			w.left[i] = size{s.seq, bytes, false}
		}
	}
	return failed("ask how large events are", err)
}

// among is a condition that holds for exactly the given events, which rise. The bounds are there for the
// planner, which prunes partitions by them and not by a list.
func among(part sizes) (where string, args []any) {
	first, last := part[0].seq, part[len(part)-1].seq
	args = []any{first, last}
	if int64(len(part)) == last-first+1 {
		return `e.seq >= $1 AND e.seq <= $2`, args
	}
	seqs := make([]int64, len(part))
	for i, s := range part {
		seqs[i] = s.seq
	}
	return `e.seq >= $1 AND e.seq <= $2 AND e.seq = ANY ($3::bigint[])`, append(args, seqs)
}
