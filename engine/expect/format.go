// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"example.com/bothy/engine/document"
)

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// formats are the rules on texts of a test file. Those of events are what appending them would enforce.
var formats = map[string]document.Format{
	"test_name": {
		Code: "bad-test-name", Fix: "write one line of up to 200 characters", Example: "a paid order is announced",
		Trouble: func(text string) (string, string) {
			switch {
			case strings.ContainsFunc(text, unicode.IsControl):
				return "which is more than one line", ""
			case utf8.RuneCountInString(text) > 200:
				return "which is longer than 200 characters", ""
			case strings.TrimSpace(text) != text || text == "":
				return "which begins or ends with a blank", ""
			}
			return "", ""
		},
	},
	"event_type": {
		Code: "bad-event-type", Fix: "write up to 256 characters without blanks, such as order.paid", Example: "order.paid",
		Trouble: func(text string) (string, string) {
			switch {
			case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }):
				return "which holds a blank or a control character", ""
			case utf8.RuneCountInString(text) > 256:
				return "which is longer than 256 characters", ""
			case text == "":
				return "which is empty", ""
			}
			return "", ""
		},
	},
	"event_id": {
		Code: "bad-event-id", Fix: "write a UUID such as 0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d, or leave the id out",
		Example: "0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d", Pattern: uuid.String(),
		Trouble: func(text string) (string, string) {
			if !uuid.MatchString(text) {
				return "which is no UUID", ""
			}
			return "", ""
		},
	},
	"moment": {
		Code: "bad-time", Fix: "write a time with its zone, such as 2026-01-31T09:30:00Z", Example: "2026-01-31T09:30:00Z",
		Trouble: func(text string) (string, string) {
			if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
				return "which is no point in time", ""
			}
			return "", ""
		},
	},
	// What these hold, the configuration or the database knows; here they are not empty.
	"consumer":    some("archive"),
	"kind":        some("archive.append"),
	"queue":       some("default"),
	"person":      some("alex"),
	"message":     some("the recipient rule"),
	"script":      some("CREATE TABLE public.watchers (id bigint)"),
	"table":       some("public.watchers"),
	"column":      some("id"),
	"resource":    some("order"),
	"resource_id": some("ord-1001"),
	"recipient":   some("alex"),
	"script_file": {
		Code: "bad-setup", Fix: "write the path of an SQL file, or put the SQL under setup_sql", Example: "tables.sql",
		Trouble: func(text string) (string, string) {
			if strings.ContainsAny(text, ";\n\x00") || text == "" {
				return "which is no path of a file", ""
			}
			return "", ""
		},
	},
}

// some is any text but the empty one, which the reader has refused before it asks.
func some(example string) document.Format {
	return document.Format{
		Code: "empty-value", Fix: "write a text such as " + example, Example: example,
		Trouble: func(text string) (string, string) {
			if text == "" {
				return "which is empty", ""
			}
			return "", ""
		},
	}
}

// moment reads what the format lets pass.
func moment(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return t
}
