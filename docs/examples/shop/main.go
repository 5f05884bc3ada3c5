// SPDX-License-Identifier: Apache-2.0

// Command shop is an example of an application of yours that appends events in its own transactions and
// runs the engine with a handler of its own.
//
//	BOTHY_DATABASE_URL=postgres://... go run ./docs/examples/shop docs/examples/shop/consumers.yaml
//
// Most applications do one of the two: append here, and run `engine run` beside them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/producer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: shop CONSUMERS.YAML")
		os.Exit(2)
	}
	if err := serve(ctx, os.Args[1], os.LookupEnv); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		stop()
		os.Exit(1)
	}
}

// pay is a use case of the shop: the order changes and the event is appended in one transaction.
func pay(ctx context.Context, tx pgx.Tx, order string) error {
	if _, err := tx.Exec(ctx, `UPDATE public.orders SET state = 'paid' WHERE id = $1`, order); err != nil {
		return fmt.Errorf("pay order %s: %w", order, err)
	}
	_, err := producer.Append(ctx, tx, producer.Event{
		Type: "order.paid", Resource: "order", ResourceID: order,
		Audience: []string{"alex", "robin"}, Payload: json.RawMessage(`{"total": "12.50"}`),
	})
	return err
}

// serve runs the engine with the shop's own handler until ctx ends.
func serve(ctx context.Context, file string, env func(string) (string, bool)) error {
	cfg, problems := config.Load(file, env)
	if err := problems.Err(); err != nil {
		return err // each problem with its line, its reason and what to write instead
	}
	e, err := engine.Open(ctx, cfg, engine.WithLogger(slog.Default()))
	if err != nil {
		return err
	}
	defer e.Close()
	err = e.Register("owners", func(ctx context.Context, tx *engine.HandlerTx, ev engine.Event) ([]string, error) {
		var owner string // in the round's transaction: tx may also write rows of your own
		err := tx.QueryRow(ctx, `SELECT owner FROM public.orders WHERE id = $1`, ev.ResourceID).Scan(&owner)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil // nobody: no job
		}
		return []string{owner}, err
	})
	if err != nil {
		return err
	}
	return e.Run(ctx, engine.RoleWorker)
}
