// SPDX-License-Identifier: Apache-2.0

package enginetest_test

import (
	"testing"
	"time"

	"example.com/bothy/engine/enginetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

func TestNewGivesEachTestItsOwnDatabase(t *testing.T) {
	t.Parallel()
	a, b := enginetest.New(t), enginetest.New(t)
	a.Append(t, 3)
	b.Append(t, 1)
	if got, want := [2]int64{a.Head(t), b.Head(t)}, [2]int64{3, 1}; got != want {
		t.Errorf("heads of two databases: got %v, want %v", got, want)
	}
}

func TestRolesAndConsumers(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("webhooks", "push"))
	if _, err := db.App(t).Exec(t.Context(), `INSERT INTO bothy.event_consumer_cursors (name) VALUES ('push')`); err != nil {
		t.Errorf("cursor of a declared consumer: %v", err)
	}
	if _, err := db.Producer(t).Exec(t.Context(), `SELECT * FROM bothy.event_log`); err == nil {
		t.Error("a producer reads the log: got no error, want one")
	}
	if got := db.Jobs(t, "any"); got != 0 {
		t.Errorf("jobs of a new database: got %d, want 0", got)
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.Empty())
	var n int
	if err := db.Admin(t).QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname = 'bothy'`).Scan(&n); err != nil || n != 0 {
		t.Errorf("schemas of the engine in an empty database: got %d, %v, want none", n, err)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	enginetest.New(t) // the server and the template
	start := time.Now()
	const many = 20
	t.Run("group", func(t *testing.T) {
		for range many {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				enginetest.New(t)
			})
		}
	})
	t.Logf("%v per database, made and dropped", time.Since(start)/many)
}
