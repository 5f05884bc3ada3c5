// SPDX-License-Identifier: Apache-2.0

// Package definitions owns the tables of the engine: what a round does and what becomes of a restored database,
// as text that the engine proves before it runs it, and the cases that say what must come of each. It refuses
// to know anything, not even how a table is read: it hands out a name and the text.
package definitions

import _ "embed"

//go:embed round.yaml
var round []byte

//go:embed round.cases.yaml
var roundCases []byte

//go:embed restore.yaml
var restore []byte

//go:embed restore.cases.yaml
var restoreCases []byte

// Round is the table of one round: the file's name below the repository, for problems that point into
// it, and its text. The text is a copy, so no caller can change what the next one reads.
func Round() (file string, text []byte) {
	return "definitions/round.yaml", append([]byte(nil), round...)
}

// RoundCases are the cases of the round table: the file's name below the repository, and a copy of its text.
func RoundCases() (file string, text []byte) {
	return "definitions/round.cases.yaml", append([]byte(nil), roundCases...)
}

// Restore is the table of `engine restore finalize`: the file's name and a copy of its text.
func Restore() (file string, text []byte) {
	return "definitions/restore.yaml", append([]byte(nil), restore...)
}

// RestoreCases are the cases of the restore table: the file's name and a copy of its text.
func RestoreCases() (file string, text []byte) {
	return "definitions/restore.cases.yaml", append([]byte(nil), restoreCases...)
}
