// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/problem"
)

// CheckDatabase asks the database of a configuration about everything that the file alone cannot tell. It changes
// nothing there. An error is one of the connection.
func CheckDatabase(ctx context.Context, cfg *config.Config) (problem.List, error) {
	e, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	found, err := e.checkRules(ctx)
	var known problem.List
	for _, p := range found {
		if p.Code != "unknown-handler" { // the program that runs the file may register it
			known = append(known, p)
		}
	}
	return known, err
}
