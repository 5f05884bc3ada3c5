// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"

	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/round"
)

// Scene is what the database holds while recipient rules are rehearsed.
type Scene = postgres.Scene

// Row is one row of a table, in a Scene.
type Row = postgres.Row

// Rehearsed is what the rule of one consumer gave in a rehearsal.
type Rehearsed = postgres.Rehearsed

// Rehearse runs the rules of declared consumers over a scene as their rounds would, inside a transaction that
// is never committed. It answers in the order of names. The database is one for tests: its log is empty, and
// nobody else works on it.
func (e *Engine) Rehearse(ctx context.Context, scene Scene, names []string) ([]Rehearsed, error) {
	declared := Consumers(e.config)
	chosen := make([]round.Consumer, len(names))
	for i, name := range names {
		at := slices.IndexFunc(declared, func(c round.Consumer) bool { return c.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("consumer %q is not declared in %s", name, e.config.File())
		}
		chosen[i] = declared[at]
	}
	scene.Jobs = e.config.Jobs.Schema
	return e.store.Rehearse(ctx, scene, chosen)
}
