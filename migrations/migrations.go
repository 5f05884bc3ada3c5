// SPDX-License-Identifier: Apache-2.0

// Package migrations owns the numbered SQL files that make and change the engine's schema. Each file is
// a template: {{schema}} is the schema as a quoted identifier, {{schema_literal}} the same as a text, and
// {{schema_text}} the qualified event_log as a text. Each ends by inserting its row into schema_migration
// with the oldest binary that still works with it: the number of the newest migration that such a binary
// carries.
//
// It refuses to know who runs them: rendering, order and locks belong to engine/postgres. A file that
// was released is never edited; a change is a new file. Files only go forward: the way back is a backup.
package migrations

import "embed"

// Files holds the migrations, named by number: 0001_instance.sql.
//
//go:embed *.sql
var Files embed.FS
