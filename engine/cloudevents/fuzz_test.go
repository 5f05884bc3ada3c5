// SPDX-License-Identifier: Apache-2.0

package cloudevents_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// What is read is what encoding/json reads too, and every problem has a place inside the input.
func FuzzReader(f *testing.F) {
	f.Add([]byte(sampleLine(1) + "\n" + sampleLine(2)))
	f.Add([]byte("[" + sampleLine(1) + "," + sampleLine(2) + "]"))
	f.Add([]byte(minimal(`,"data_base64":"aGVsbG8=","audience":["a","b"],"x":1`)))
	f.Add([]byte(minimal(`,"data":"\ud83d\ude00 \u0000"`)))
	f.Add([]byte(minimal(`,"data":[1e5,-0.1,{"a":{}},true]`)))
	f.Add([]byte("\uFEFF[" + minimal("")))
	f.Fuzz(func(t *testing.T, in []byte) {
		events, problems, _ := all(t, bytes.NewReader(in))
		lines := bytes.Count(in, []byte("\n")) + 1
		for _, p := range problems {
			if p.At.Line < 1 || p.At.Col < 1 || p.At.Line > lines || p.At.Col > len(in)+1 || p.Code == "" || p.What == "" {
				t.Errorf("%q: got the problem %+v, want one inside the input", in, p)
			}
		}
		for _, e := range events {
			if !json.Valid(e.Payload) || !utf8.Valid(e.Payload) {
				t.Errorf("%q: got the payload %q, want JSON", in, e.Payload)
			}
			if e.Type == "" || e.Resource == "" || len(e.ID) != 36 || e.Line < 1 || e.Line > lines {
				t.Errorf("%q: got the event %+v, want type, source, a UUID and a line", in, e)
			}
			for _, text := range append([]string{e.Type, e.Resource, e.ResourceID}, e.Audience...) {
				if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
					t.Errorf("%q: got %q, want UTF-8 without a zero", in, text)
				}
			}
		}
		if line := bytes.TrimSpace(in); len(events) == 1 && len(problems) == 0 && line[0] == '{' && !json.Valid(line) {
			t.Errorf("%q: got an event, want what encoding/json says: no JSON", in)
		}
	})
}
