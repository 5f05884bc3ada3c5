// SPDX-License-Identifier: Apache-2.0

package producer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// EventError says what is wrong with one event. Nothing was sent.
type EventError struct {
	Index int    // in the arguments of Append, from 0
	Field string // Type, Audience, Payload, ...
	cause error
}

func (e *EventError) Error() string {
	return fmt.Sprintf("event %d: %s %v", e.Index, e.Field, e.cause)
}

// Unwrap is what is wrong, without the place.
func (e *EventError) Unwrap() error { return e.cause }

// Check says whether an event can be appended, without sending it. The error is an *EventError with the
// index 0.
func (e Event) Check() error { return e.check(0) }

// maxType is in characters, as the server counts.
const maxType = 256

func (e Event) check(index int) error {
	bad := func(field string, err error) error {
		if err == nil {
			return nil
		}
		return &EventError{Index: index, Field: field, cause: err}
	}
	for _, err := range []error{
		bad("Type", checkType(e.Type)),
		bad("Resource", checkText(e.Resource)),
		bad("ResourceID", checkText(e.ResourceID)),
		bad("Audience", checkAudience(e.Audience)),
		bad("Payload", checkPayload(e.Payload)),
		bad("Time", checkTime(e.Time)),
		bad("ID", checkID(e.ID)),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkType(t string) error {
	if t == "" {
		return errors.New("is empty: give the event a type such as order.created")
	}
	if err := checkText(t); err != nil {
		return err
	}
	if n := utf8.RuneCountInString(t); n > maxType {
		return fmt.Errorf("has %d characters: at most %d are allowed", n, maxType)
	}
	if strings.ContainsFunc(t, blank) {
		return fmt.Errorf("is %q: blanks and control characters are not allowed", t)
	}
	return nil
}

// blank reports what an event type may not hold. The server refuses the same set.
func blank(r rune) bool {
	switch {
	case unicode.IsSpace(r), unicode.IsControl(r), r == '\u00a0', r == '\u1680', r == '\u3000', r == '\ufeff':
		return true
	default:
		return '\u2000' <= r && r <= '\u200f' || '\u2028' <= r && r <= '\u202f' || '\u205f' <= r && r <= '\u2064'
	}
}

// checkText refuses what PostgreSQL cannot store and what Go's JSON encoder would silently replace.
func checkText(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("is not valid UTF-8: %q", s)
	}
	if strings.ContainsRune(s, 0) {
		return fmt.Errorf("holds a zero byte, which PostgreSQL cannot store: %q", s)
	}
	return nil
}

func checkAudience(audience []string) error {
	for i, name := range audience {
		if name == "" {
			return fmt.Errorf("element %d is empty: every element names one recipient", i)
		}
		if err := checkText(name); err != nil {
			return fmt.Errorf("element %d %w", i, err)
		}
	}
	return nil
}

func checkTime(t time.Time) error {
	if year := t.UTC().Year(); year < 1 || year > 9999 {
		return fmt.Errorf("is in the year %d: give one from 1 to 9999", year)
	}
	return nil
}

func checkID(id string) error {
	if id == "" {
		return nil
	}
	wrong := len(id) != 36
	for i := 0; i < len(id) && !wrong; i++ {
		c := id[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			wrong = c != '-'
		} else {
			wrong = !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F')
		}
	}
	if wrong {
		return fmt.Errorf("is %q: give a UUID such as 0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d", id)
	}
	return nil
}

// checkPayload accepts exactly the JSON that jsonb stores without a change of meaning.
func checkPayload(payload json.RawMessage) error {
	if payload == nil {
		return nil
	}
	if !utf8.Valid(payload) {
		return errors.New("is not valid UTF-8")
	}
	if !json.Valid(payload) {
		var ignored json.RawMessage
		return fmt.Errorf("is not JSON: %w", json.Unmarshal(payload, &ignored))
	}
	return checkEscapes(payload)
}

// checkEscapes finds the escapes that are JSON and no text: code point zero, and half of a surrogate pair.
// The input is valid JSON, so a backslash occurs inside texts only and its escape is complete.
func checkEscapes(payload []byte) error {
	for i := 0; i < len(payload); {
		skip := bytes.IndexByte(payload[i:], '\\')
		if skip < 0 {
			return nil
		}
		i += skip
		if payload[i+1] != 'u' {
			i += 2
			continue
		}
		unit := hex4(payload[i+2:])
		switch {
		case unit == 0:
			return fmt.Errorf(`holds the escape \u0000 at byte %d, which PostgreSQL cannot store`, i)
		case 0xdc00 <= unit && unit <= 0xdfff:
			return fmt.Errorf("holds half of a surrogate pair at byte %d", i)
		case 0xd800 <= unit && unit <= 0xdbff:
			rest := payload[i+6:]
			if !bytes.HasPrefix(rest, []byte(`\u`)) || hex4(rest[2:]) < 0xdc00 || hex4(rest[2:]) > 0xdfff {
				return fmt.Errorf("holds half of a surrogate pair at byte %d", i)
			}
			i += 6
		}
		i += 6
	}
	return nil
}

// hex4 reads the four hexadecimal digits of an escape.
func hex4(b []byte) (unit int) {
	for _, c := range b[:4] {
		var digit int
		switch {
		case c <= '9':
			digit = int(c - '0')
		case c >= 'a':
			digit = int(c-'a') + 10
		default:
			digit = int(c-'A') + 10
		}
		unit = unit<<4 | digit
	}
	return unit
}

// chunk is a JSON array for append_events, and which events it holds.
type chunk struct {
	json         []byte
	first, count int
}

// wire is an event with the keys of append_events.
type wire struct {
	Type       string          `json:"type"`
	Resource   string          `json:"resource,omitempty"`
	ResourceID string          `json:"resource_id,omitempty"`
	Audience   []string        `json:"audience,omitempty"`
	Payload    json.RawMessage `json:"payload,omitempty"`
	Time       string          `json:"event_time,omitempty"`
	ID         string          `json:"id,omitempty"`
	Trace      string          `json:"traceparent,omitempty"`
}

// malformed is a traceparent for one that is none. Left out altogether it would give the event the transaction's.
const malformed = "-"

// traceOf is what is sent for a traceparent. The server decides whether it is one; here only what PostgreSQL could not
// read as text is replaced.
func traceOf(traceparent string) string {
	if traceparent != "" && checkText(traceparent) != nil {
		return malformed
	}
	return traceparent
}

// encode checks every event before the first is sent, and packs them into chunks.
func encode(events []Event) ([]chunk, error) {
	var chunks []chunk
	var body bytes.Buffer
	first := 0
	cut := func(next int) {
		if next > first {
			body.WriteByte(']')
			chunks = append(chunks, chunk{bytes.Clone(body.Bytes()), first, next - first})
			body.Reset()
			first = next
		}
	}
	for i, e := range events {
		if err := e.check(i); err != nil {
			return nil, err
		}
		w := wire{Type: e.Type, Resource: e.Resource, ResourceID: e.ResourceID, Audience: e.Audience, Payload: e.Payload, ID: e.ID, Trace: traceOf(e.Traceparent)}
		if !e.Time.IsZero() {
			w.Time = e.Time.UTC().Format(time.RFC3339Nano)
		}
		text, err := json.Marshal(w)
		if err != nil {
			return nil, &EventError{Index: i, Field: "Payload", cause: err}
		}
		if body.Len() > 0 && body.Len()+len(text) > chunkBytes {
			cut(i)
		}
		if body.Len() == 0 {
			body.WriteByte('[')
		} else {
			body.WriteByte(',')
		}
		body.Write(text)
	}
	cut(len(events))
	return chunks, nil
}
