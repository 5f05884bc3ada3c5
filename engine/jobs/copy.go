// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/round"
)

// jobColumns are what a job of the engine says of itself. Everything else is a default of River's table:
// its state is available, and created_at and scheduled_at come from the server's clock, by which workers
// fetch, and not from this machine's.
var jobColumns = []string{"args", "kind", "max_attempts", "priority", "queue", "tags"}

// metadataColumn is written as well when an event of the round has a trace.
const metadataColumn = "metadata"

// columnsOf are the columns of the jobs.
func columnsOf(jobs round.Jobs) []string {
	if jobs.Traces == nil {
		return jobColumns
	}
	return append(slices.Clip(jobColumns), metadataColumn)
}

// copyHeader begins a binary COPY: the signature, no flags, no extension.
const copyHeader = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// copyRows is the binary COPY of the jobs of one round, written as it is read: however many targets there
// are, what is in memory is one buffer.
//
// https://www.postgresql.org/docs/current/sql-copy.html describes the format.
type copyRows struct {
	targets []round.Target
	epoch   string
	traces  map[int64]string
	columns int
	same    []byte // all columns between args and the metadata: they are the same in every row
	buffer  []byte // encoded, not read yet
	begun   bool
	done    bool
}

// newCopyRows prepares the jobs of a consumer.
func newCopyRows(c round.Consumer, jobs round.Jobs) *copyRows {
	var same []byte
	same = appendField(same, c.Job.Kind)
	same = binary.BigEndian.AppendUint32(same, 2)
	same = binary.BigEndian.AppendUint16(same, uint16(c.Job.MaxAttempts)) //nolint:gosec // 1 to 32767
	same = binary.BigEndian.AppendUint32(same, 2)
	same = binary.BigEndian.AppendUint16(same, uint16(c.Job.Priority)) //nolint:gosec // 1 to 4
	same = appendField(same, c.Job.Queue)
	same = appendTags(same, c.Name)
	return &copyRows{targets: jobs.Targets, epoch: jobs.Epoch, traces: jobs.Traces, columns: len(columnsOf(jobs)), same: same}
}

// varcharOID is the type of one tag.
const varcharOID = 1043

// appendTags is an array of one varchar: dimensions, no nulls, type, length, lower bound, element.
func appendTags(b []byte, tag string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(5*4+4+len(tag))) //nolint:gosec // a name
	for _, n := range []uint32{1, 0, varcharOID, 1, 1} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return appendField(b, tag)
}

func appendField(b []byte, text string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(text))) //nolint:gosec // below the limit of a row
	return append(b, text...)
}

// Read gives the next part of the stream. An error of a target is the error of the whole COPY.
func (c *copyRows) Read(p []byte) (int, error) {
	for len(c.buffer) < len(p) && !c.done {
		if err := c.grow(); err != nil {
			return 0, err
		}
	}
	if len(c.buffer) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.buffer)
	c.buffer = c.buffer[:copy(c.buffer, c.buffer[n:])]
	return n, nil
}

// grow encodes the next row, or the end.
func (c *copyRows) grow() error {
	if !c.begun {
		c.begun = true
		c.buffer = append(c.buffer, copyHeader...)
	}
	if len(c.targets) == 0 {
		c.done = true
		c.buffer = append(c.buffer, 0xff, 0xff)
		return nil
	}
	t := c.targets[0]
	c.targets = c.targets[1:]
	c.buffer = binary.BigEndian.AppendUint16(c.buffer, uint16(c.columns)) //nolint:gosec // six or seven
	length := c.beginJSON()
	var err error
	if c.buffer, err = appendArgs(c.buffer, t, c.epoch); err != nil {
		return err
	}
	c.endJSON(length)
	c.buffer = append(c.buffer, c.same...)
	if c.traces != nil {
		length = c.beginJSON()
		c.buffer = appendMetadata(c.buffer, c.traces[t.Seq])
		c.endJSON(length)
	}
	return nil
}

// beginJSON begins a field of jsonb whose length endJSON fills in; 1 is the version of the format.
func (c *copyRows) beginJSON() (length int) {
	length = len(c.buffer)
	c.buffer = append(c.buffer, 0, 0, 0, 0, 1)
	return length
}

func (c *copyRows) endJSON(length int) {
	binary.BigEndian.PutUint32(c.buffer[length:], uint32(len(c.buffer)-length-4)) //nolint:gosec // below the limit of a row
}

// traceLength is how long a traceparent is.
const traceLength = 55

// appendMetadata writes the metadata of a job: the trace of its event under the name that W3C Trace Context gives it,
// so that a worker can hand the metadata to its propagator as they are. What is no traceparent is left out.
func appendMetadata(b []byte, trace string) []byte {
	if len(trace) != traceLength || !plain(trace) {
		return append(b, "{}"...)
	}
	b = append(b, `{"traceparent":"`...)
	b = append(b, trace...)
	return append(b, `"}`...)
}

// appendArgs writes the arguments of a target as JSON. A recipient that JSON or PostgreSQL cannot hold as it
// is is an error: nobody's name is mended silently.
func appendArgs(b []byte, t round.Target, epoch string) ([]byte, error) {
	b = append(b, `{"seq":`...)
	b = strconv.AppendInt(b, t.Seq, 10)
	b = append(b, `,"recipient":`...)
	if plain(t.Recipient) {
		b = append(b, '"')
		b = append(b, t.Recipient...)
		b = append(b, '"')
	} else {
		if !utf8.ValidString(t.Recipient) || strings.ContainsRune(t.Recipient, 0) {
			return nil, &RecipientError{t}
		}
		encoded, err := json.Marshal(t.Recipient)
		if err != nil {
			return nil, fmt.Errorf("recipient %q of event %d: %w", t.Recipient, t.Seq, err)
		}
		b = append(b, encoded...)
	}
	b = append(b, `,"epoch":"`...)
	b = append(b, epoch...)
	return append(b, `"}`...), nil
}

// RecipientError is a recipient that no job can name.
type RecipientError struct{ round.Target }

func (e *RecipientError) Error() string {
	return fmt.Sprintf("recipient %q of event %d is not text in UTF-8 without zero bytes", e.Recipient, e.Seq)
}

// ErrorType is rule: the consumer's rule gave the recipient.
func (e *RecipientError) ErrorType() string { return "rule" }

// plain reports whether JSON writes text as it is.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// copyJobs sends one COPY, whatever the number of targets. A tracer of the connection sees it like any other.
func copyJobs(ctx context.Context, conn *pgx.Conn, table pgx.Identifier, columns []string, rows *copyRows, want int) (err error) {
	if tracer, ok := conn.Config().Tracer.(pgx.CopyFromTracer); ok {
		ctx = tracer.TraceCopyFromStart(ctx, conn, pgx.TraceCopyFromStartData{TableName: table, ColumnNames: columns})
		defer func() { tracer.TraceCopyFromEnd(ctx, conn, pgx.TraceCopyFromEndData{Err: err}) }()
	}
	tag, err := conn.PgConn().CopyFrom(ctx, rows, `COPY `+table.Sanitize()+` (`+strings.Join(columns, ", ")+`) FROM STDIN BINARY`)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != int64(want) {
		return fmt.Errorf("the server stored %d jobs of %d", tag.RowsAffected(), want)
	}
	return nil
}
