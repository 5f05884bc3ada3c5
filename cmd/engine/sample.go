// SPDX-License-Identifier: Apache-2.0

package main

import _ "embed"

// sampleEvents are the CloudEvents that `engine dev` appends when it is given none: a few days of a small
// shop whose people also write to each other. The generator stands beside its test.
//
//go:embed sample/events.jsonl
var sampleEvents []byte

// sampleSetup makes the table that the query rule of the shipped consumers.yaml joins.
//
//go:embed sample/watchers.sql
var sampleSetup string
