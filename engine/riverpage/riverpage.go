// SPDX-License-Identifier: Apache-2.0

// Package riverpage owns River UI as `engine dev` serves it: a page that shows the jobs, and can cancel, retry and
// delete them. River UI asks nobody who they are, so whoever serves this page lets requests of this machine in and
// no others. It is a room of its own so that a program which embeds the engine does not carry River UI.
package riverpage

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"riverqueue.com/riverui"
)

// New makes the page for the jobs of a schema, below a prefix such as /jobs. What it does in the background ends
// with ctx.
func New(ctx context.Context, pool *pgxpool.Pool, schema, prefix string, logger *slog.Logger) (http.Handler, error) {
	// a client without workers: it never leads, and works nothing
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Schema: schema, Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("make the client of River UI: %w", err)
	}
	page, err := riverui.NewHandler(&riverui.HandlerOpts{Endpoints: riverui.NewEndpoints(client, nil), Logger: logger, Prefix: prefix})
	if err != nil {
		return nil, fmt.Errorf("make River UI: %w", err)
	}
	if err := page.Start(ctx); err != nil {
		return nil, fmt.Errorf("start River UI: %w", err)
	}
	return page, nil
}
