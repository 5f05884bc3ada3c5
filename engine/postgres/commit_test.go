// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/round"
)

// breaking is an inserter whose statement fails, and which does not tell.
type breaking struct{}

func (breaking) Insert(ctx context.Context, tx pgx.Tx, _ round.Consumer, _ round.Jobs) error {
	var n int
	_ = tx.QueryRow(ctx, `SELECT 1 / 0`).Scan(&n)
	return nil
}

func (breaking) InsertOwn(context.Context, pgx.Tx, postgres.OwnArgs, round.Job, string) error {
	return nil
}

// PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK and without an error. Taking that for
// success would move on without the jobs.
func TestCommitOfAFailedTransactionIsAnError(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("push"))
	store, err := postgres.Open(t.Context(), postgres.Options{URL: db.AppURL, Schema: enginetest.Schema, MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	store.UseInserter(breaking{})
	if err := store.Ensure(t.Context(), []string{"push"}); err != nil {
		t.Fatal(err)
	}
	db.Append(t, 1)
	err = store.Round(t.Context(), round.Consumer{Name: "push", Batch: 10}, func(ctx context.Context, tx *postgres.Tx) bool {
		if lock, _, err := tx.Lock(ctx); lock != round.Held || err != nil {
			t.Errorf("Lock: %s, %v", lock, err)
		}
		if err := tx.Insert(ctx, []round.Target{{Seq: 1}}); err != nil {
			t.Errorf("Insert: %v", err)
		}
		return true
	})
	if err == nil || !strings.Contains(err.Error(), "the server answered ROLLBACK to COMMIT") {
		t.Errorf("Round = %v, want the refused commit", err)
	}
}
