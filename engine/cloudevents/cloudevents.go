// SPDX-License-Identifier: Apache-2.0

// Package cloudevents owns the reading of CloudEvents 1.0 in JSON: a stream of events, one on each line
// or all in one array, becomes values that a producer can append to the log.
//
//	attribute                  the event to append
//	type                       Type
//	source                     Resource
//	subject                    ResourceID, empty when absent
//	id                         ID as it is when it is a UUID, else a UUID (version 5) of source and id
//	time                       Time, zero when absent
//	data                       Payload, the exact text of any JSON value; {} when absent or null
//	data_base64                Payload {"data_base64": "..."}
//	audience (an extension)    Audience: names with commas between them, or an array of strings
//	traceparent (an extension) Traceparent when it is one, else counted by Unmapped
//	specversion                only checked: it has to be "1.0"
//	datacontenttype            nothing when it says JSON, which Payload is; else counted by Unmapped
//	every other one            nothing, but counted by Unmapped
//
// An attribute whose value is null counts as absent, as CloudEvents says.
//
// It refuses what the log could not store or would store changed: the escape for code point zero, half of
// a surrogate pair, bytes that are no UTF-8, nesting and numbers beyond all use. It refuses an attribute
// of the wrong type, a name that CloudEvents does not allow, and the same attribute twice. It never turns
// a number into a float. It knows no database, and it holds one event in memory at a time.
package cloudevents

import (
	"encoding/json"
	"time"
)

// MaxEventBytes is the size of the largest event that a Reader accepts, counted in bytes of its JSON text.
const MaxEventBytes = 128 << 20

// maxDepth bounds the nesting of one event. PostgreSQL parses JSON recursively on a stack of 2 MB.
const maxDepth = 1000

// Event is one event to append.
type Event struct {
	ID         string          // a UUID, always set
	Type       string          // never empty
	Resource   string          // never empty
	ResourceID string          // empty when the event has no subject
	Audience   []string        // no element is empty; nil when the event has none
	Payload    json.RawMessage // one JSON value, never empty
	Time       time.Time       // the producer's clock; zero when the event has no time
	// Traceparent is the trace that the producer gave, as W3C Trace Context writes it; empty when it gave none.
	Traceparent string
	Line, Col   int // where the event begins, from 1, columns counted in characters
}
