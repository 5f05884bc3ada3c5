// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine"
)

func TestMentions(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		`{"text": "@sam and @robin, please"}`:            {"sam", "robin"},
		`{"text": "(@sam) @sam"}`:                        {"sam", "sam"}, // the engine removes what is double
		`{"text": "@zoë,@kim"}`:                          {"zoë", "kim"},
		`{"text": "write to alex@example.com or me@ @"}`: nil,
		`{"text": ""}`:                                   nil,
		`{"text": 7}`:                                    nil,
		`{}`:                                             nil,
		`"@sam"`:                                         nil,
		`null`:                                           nil,
	}
	for payload, want := range tests {
		got, err := mentions(t.Context(), nil, engine.Event{Payload: json.RawMessage(payload)})
		if err != nil {
			t.Errorf("mentions of %s: %v", payload, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("mentions of %s (-want +got):\n%s", payload, diff)
		}
	}
}
