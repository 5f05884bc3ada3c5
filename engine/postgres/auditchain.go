// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditHead is the newest row of the audit. Hash stands for it and, through the chain, for every row before it.
type AuditHead struct {
	Seq  int64  // 0 while there is no row
	Hash []byte // nil while there is no row
}

// AuditRow is one row of the audit, as the chain covers it.
type AuditRow struct {
	Seq     int64
	At      time.Time
	Actor   string
	Client  string
	Action  string
	Subject string
	Details string // the text that was hashed
	Prev    []byte // the hash of the row before it
	Hash    []byte
}

// auditBegin is how the text begins that a hash covers. Another text, one day, gets another beginning.
const auditBegin = "bothy.audit.1\n"

// instantLayout is how a hash covers a time, and how a time is read where a statement may be answered in text: it depends
// on no setting of the server, the database or the role.
const instantLayout = "2006-01-02T15:04:05.000000Z"

// sqlInstant is a column of times in that layout.
func sqlInstant(column string) string {
	return `pg_catalog.to_char(` + column + ` AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
}

// instant is a time that sqlInstant wrote.
func instant(text string) (time.Time, error) {
	at, err := time.Parse(instantLayout, text)
	if err != nil {
		return at, fmt.Errorf("the time %q is not one of the years 0 to 9999", text)
	}
	return at, nil
}

// Sum works out the hash that the row must have, without asking the database: whoever can change rows can change
// the function that made their hashes.
func (r AuditRow) Sum() []byte {
	var b bytes.Buffer
	b.Write(r.Prev)
	b.WriteString(auditBegin)
	for _, field := range []string{
		strconv.FormatInt(r.Seq, 10), r.At.UTC().Format(instantLayout), r.Actor, r.Client, r.Action, r.Subject, r.Details,
	} {
		fmt.Fprintf(&b, "%d:%s,", len(field), field)
	}
	sum := sha256.Sum256(b.Bytes())
	return sum[:]
}

// ReadAuditHead reads the newest row of the audit. A counter that names a row which is not there is an error: what
// follows from the head must not be built on a piece of the audit.
func ReadAuditHead(ctx context.Context, conn Querier, schema string) (AuditHead, error) {
	var head AuditHead
	var last int64
	var hash *string
	in := quote(schema) + "."
	err := conn.QueryRow(ctx, `SELECT c.seq, coalesce(a.seq, 0), pg_catalog.encode(a.hash, 'hex') FROM `+in+`audit_seq c
LEFT JOIN (SELECT seq, hash FROM `+in+`audit_events ORDER BY seq DESC LIMIT 1) a ON true`).Scan(&head.Seq, &last, &hash)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return head, errors.New("the counter row of the audit is missing: restore the row of audit_seq with seq = the highest number in audit_events")
	case err != nil:
		return head, failed("read the newest row of the audit", err)
	case last != head.Seq:
		return head, &AuditHeadError{Schema: schema, Counter: head.Seq, Newest: last}
	}
	if hash != nil {
		head.Hash, err = hex.DecodeString(*hash)
	}
	return head, failed("read the newest row of the audit", err)
}

// AuditHeadError says that the counter of the audit and its newest row do not fit together.
type AuditHeadError struct {
	Schema          string
	Counter, Newest int64
}

func (e *AuditHeadError) Error() string {
	if e.Counter < e.Newest {
		return fmt.Sprintf("the counter of the audit stands at %d, and its newest row is %d: run `engine audit verify`, and when nothing else is wrong, as the owner: UPDATE %s.audit_seq SET seq = %[2]d",
			e.Counter, e.Newest, quote(e.Schema))
	}
	return fmt.Sprintf("the counter of the audit stands at %d, and its newest row is %d: run `engine audit verify`", e.Counter, e.Newest)
}

// SetAuditCounter is the statement that sets the counter of the audit, for a person.
func SetAuditCounter(schema string, seq int64) string {
	return fmt.Sprintf("UPDATE %s.audit_seq SET seq = %d", quoted(schema), seq)
}

// AuditFlawCode is what is wrong with the audit.
type AuditFlawCode string

// The flaws.
const (
	AuditChanged     AuditFlawCode = "changed"       // a row no longer says what was hashed
	AuditRemoved     AuditFlawCode = "removed"       // rows are missing between others
	AuditTailRemoved AuditFlawCode = "tail_removed"  // the newest rows are missing
	AuditAbove       AuditFlawCode = "above_counter" // rows that continue the chain, from the number after the counter on
	AuditForged      AuditFlawCode = "forged"        // a row that was put in from outside: the chain does not lead to it
	AuditRewritten   AuditFlawCode = "rewritten"     // sound in itself, and another audit than the one of the manifest
)

// AuditFlaw is one thing that is wrong with the rows First to Last.
type AuditFlaw struct {
	Code  AuditFlawCode
	First int64
	Last  int64
}

// String says it in a sentence.
func (f AuditFlaw) String() string {
	rows, removed := fmt.Sprintf("row %d", f.First), "was removed"
	if f.Last > f.First {
		rows, removed = fmt.Sprintf("rows %d to %d", f.First, f.Last), "were removed"
	}
	switch f.Code {
	case AuditChanged:
		return rows + " was changed after it was written: it does not give the hash that it carries"
	case AuditRemoved:
		return rows + " " + removed + ": the rows after are there"
	case AuditTailRemoved:
		return rows + " " + removed + " from the end"
	case AuditAbove:
		continues, put := "continues", "the row"
		if f.Last > f.First {
			continues, put = "continue", "them"
		}
		return fmt.Sprintf("%s %s the chain, and the counter stands at %d: it was put back to an earlier moment, or somebody who knows the chain put %s in",
			rows, continues, f.First-1, put)
	case AuditForged:
		if f.Last > f.First {
			return fmt.Sprintf("%s do not follow one another: one of the two was put in from outside", rows)
		}
		return rows + " was put in from outside: the chain does not lead to it"
	case AuditRewritten:
		return rows + " is sound and not the one of the manifest: the audit up to it was written anew"
	default:
		return rows + " " + string(f.Code)
	}
}

// AuditReport is what VerifyAudit found.
type AuditReport struct {
	Rows  int64
	Head  AuditHead   // the newest row that is there
	Flaws []AuditFlaw // in the order of their first rows; none when the chain is whole
}

// VerifyAudit follows the chain from its first row to its last and reports every break. Against a manifest, which
// keeps what the newest row was when it was written (nil for none), it also finds what the chain alone cannot tell: that its
// end is gone together with the counter, or that all of it was written anew. url may be that of the app.
func VerifyAudit(ctx context.Context, url, schema string, manifest *AuditHead) (report AuditReport, err error) {
	err = readAudit(ctx, url, func(tx pgx.Tx) error {
		var counter int64
		err := tx.QueryRow(ctx, `SELECT coalesce(max(seq), -1) FROM `+quote(schema)+`.audit_seq`).Scan(&counter)
		if err != nil {
			return failed("read the counter of the audit", err)
		}
		if counter < 0 {
			return errors.New("the counter row of the audit is missing: restore the row of audit_seq with seq = the highest number in audit_events")
		}
		links, err := readLinks(ctx, tx, schema)
		if err != nil {
			return err
		}
		report = judge(links, counter, manifest)
		return nil
	})
	return report, err
}

// ListAudit hands every row of the audit to each, oldest first, from the number from on. url may be that of the app.
func ListAudit(ctx context.Context, url, schema string, from int64, each func(AuditRow) error) error {
	return readAudit(ctx, url, func(tx pgx.Tx) error {
		return eachAuditRow(ctx, tx, schema, from, func(r AuditRow, _ string) error { return each(r) })
	})
}

// readAudit reads under one snapshot, so that rows which are appended meanwhile are not taken for damage.
func readAudit(ctx context.Context, url string, read func(pgx.Tx) error) error {
	conn, err := connectToLook(ctx, url, 0)
	if err != nil {
		return err
	}
	defer closeSoon(ctx, conn)
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return failed("read the audit", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	return Explain(read(tx))
}

func eachAuditRow(ctx context.Context, tx pgx.Tx, schema string, from int64, each func(r AuditRow, details string) error) error {
	rows, err := tx.Query(ctx, `SELECT seq, `+sqlInstant("at")+`, actor, client, action, subject, details_text,
	pg_catalog.encode(prev, 'hex'), pg_catalog.encode(hash, 'hex'), details::text FROM `+quote(schema)+`.audit_events WHERE seq >= $1 ORDER BY seq`, from)
	if err != nil {
		return failed("read the audit", err)
	}
	defer rows.Close()
	for rows.Next() {
		var r AuditRow
		var at, prev, hash, details string
		err := rows.Scan(&r.Seq, &at, &r.Actor, &r.Client, &r.Action, &r.Subject, &r.Details, &prev, &hash, &details)
		if err == nil {
			r.At, err = instant(at)
		}
		if err == nil {
			r.Prev, err = hex.DecodeString(prev)
		}
		if err == nil {
			r.Hash, err = hex.DecodeString(hash)
		}
		if err != nil {
			return failed("read the audit", err)
		}
		if err := each(r, details); err != nil {
			return err
		}
	}
	return failed("read the audit", rows.Err())
}

// link is what the judgement needs of a row.
type link struct {
	seq             int64
	prev, hash, own []byte // own is what its content gives
	sound           bool   // its content gives the hash that it carries
}

func readLinks(ctx context.Context, tx pgx.Tx, schema string) (links []link, err error) {
	err = eachAuditRow(ctx, tx, schema, 0, func(r AuditRow, details string) error {
		own := r.Sum()
		links = append(links, link{
			seq: r.Seq, prev: r.Prev, hash: r.Hash, own: own,
			sound: bytes.Equal(own, r.Hash) && sameJSON(r.Details, details),
		})
		return nil
	})
	return links, err
}

// judge finds the breaks of a chain.
func judge(links []link, counter int64, manifest *AuditHead) AuditReport {
	report := AuditReport{Rows: int64(len(links))}
	flaw := func(code AuditFlawCode, first, last int64) {
		if f := (AuditFlaw{code, first, last}); !slices.Contains(report.Flaws, f) {
			report.Flaws = append(report.Flaws, f)
		}
	}
	above := aboveCounter(links, counter)
	for i, l := range links {
		before := int64(0)
		if i > 0 {
			before = links[i-1].seq
		}
		if above != nil && before <= counter && l.seq > counter {
			flaw(AuditAbove, above.First, above.Last)
		}
		if l.seq > before+1 {
			flaw(AuditRemoved, before+1, l.seq-1)
		}
		switch {
		case l.seq > counter && !l.sound && leadsOn(links, i) != jointWhole:
			flaw(AuditForged, l.seq, l.seq)
		case l.seq > counter && before <= counter && leadsTo(links, i) == jointBroken:
			flaw(AuditForged, l.seq, l.seq) // the counter vouches for the row before
		case !l.sound && leadsTo(links, i) == jointBroken && leadsOn(links, i) == jointBroken:
			flaw(AuditForged, l.seq, l.seq)
		case !l.sound:
			flaw(AuditChanged, l.seq, l.seq)
		case leadsTo(links, i) == jointBroken && (i == 0 || links[i-1].sound):
			first, last := blame(links, i)
			flaw(AuditForged, first, last)
		}
	}
	end := int64(0)
	if n := len(links); n > 0 {
		end = links[n-1].seq
		report.Head = AuditHead{end, links[n-1].hash}
	}
	gone := counter
	if manifest != nil {
		gone = max(gone, manifest.Seq)
	}
	if gone > end {
		flaw(AuditTailRemoved, end+1, gone)
	}
	if manifest != nil && !slices.ContainsFunc(report.Flaws, func(f AuditFlaw) bool { return f.Code != AuditAbove }) {
		for _, l := range links {
			if l.seq == manifest.Seq && !bytes.Equal(l.hash, manifest.Hash) {
				flaw(AuditRewritten, l.seq, l.seq)
			}
		}
	}
	return report
}

// aboveCounter are the numbers above the counter up to the last row that continues the chain; nil when none does.
func aboveCounter(links []link, counter int64) (above *Span) {
	for i, l := range links {
		switch {
		case l.seq <= counter:
		case leadsTo(links, i) == jointBroken, !l.sound && leadsOn(links, i) != jointWhole:
			return above
		default:
			above = &Span{First: counter + 1, Last: l.seq}
		}
	}
	return above
}

// joint is whether two rows belong together.
type joint int

const (
	jointUnknown joint = iota + 1 // the neighbour is not there
	jointWhole
	jointBroken
)

// leadsTo says whether the row before leads to row i. The first row follows 32 bytes of zero.
func leadsTo(links []link, i int) joint {
	l := links[i]
	switch {
	case i == 0 && l.seq == 1:
		return jointOf(bytes.Equal(l.prev, make([]byte, sha256.Size)))
	case i == 0 || links[i-1].seq != l.seq-1:
		return jointUnknown
	default:
		return jointOf(bytes.Equal(l.prev, links[i-1].hash) || bytes.Equal(l.prev, links[i-1].own))
	}
}

// leadsOn says whether row i leads to the one after it.
func leadsOn(links []link, i int) joint {
	if i+1 == len(links) {
		return jointUnknown
	}
	return leadsTo(links, i+1)
}

func jointOf(fits bool) joint {
	if fits {
		return jointWhole
	}
	return jointBroken
}

// blame says which of two sound rows that do not follow one another is the stranger: the one that its other
// neighbour does not know either, else the one that nothing follows, else either.
func blame(links []link, i int) (first, last int64) {
	here := links[i].seq
	switch {
	case i == 0:
		return here, here
	case leadsOn(links, i) == jointBroken:
		return here, here
	case leadsTo(links, i-1) == jointBroken:
		return here - 1, here - 1
	default:
		return here - 1, here
	}
}

// sameJSON reports whether two texts are the same JSON. They differ as texts when another version of the server
// wrote one of them.
func sameJSON(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := decodeJSON(a)
	y, errY := decodeJSON(b)
	return errX == nil && errY == nil && sameValue(x, y)
}

func decodeJSON(text string) (value any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	err = d.Decode(&value)
	return value, err
}

func sameValue(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for name, value := range x {
			if other, there := y[name]; !there || !sameValue(value, other) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !sameValue(x[i], y[i]) {
				return false
			}
		}
		return true
	case json.Number:
		y, ok := b.(json.Number)
		return ok && sameNumber(x.String(), y.String())
	default:
		return a == b
	}
}

// sameNumber compares exactly: no number of the audit is rounded.
func sameNumber(a, b string) bool {
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	return a == b || okX && okY && x.Cmp(y) == 0
}
