// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"regexp"

	"example.com/bothy/engine"
)

// mentionsName is what consumers.yaml calls the handler of this program.
const mentionsName = "mentions"

// mention is a name after an @ that follows no letter or digit: no mail address mentions anybody.
var mention = regexp.MustCompile(`(?:^|[^\pL\pN@._-])@([\pL\pN_-]+)`)

// mentions is the handler that this program brings, for the shipped consumers.yaml: each @name in the text of
// a message is a recipient. An event without such a text has none.
func mentions(_ context.Context, _ *engine.HandlerTx, e engine.Event) ([]string, error) {
	var message struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(e.Payload, &message); err != nil {
		return nil, nil //nolint:nilerr // a payload of another shape mentions nobody, and must not stop the consumer
	}
	var names []string
	for _, found := range mention.FindAllStringSubmatch(message.Text, -1) {
		names = append(names, found[1])
	}
	return names, nil
}
