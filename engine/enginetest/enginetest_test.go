// SPDX-License-Identifier: Apache-2.0

package enginetest_test

import (
	"maps"
	"slices"
	"sync"
	"testing"

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

// Many tests at once get databases of their own, and leave none behind.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	keep := enginetest.New(t) // the server and the template
	const many = 20
	var mu sync.Mutex
	names := map[string]bool{}
	t.Run("group", func(t *testing.T) {
		for n := range many {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				db := enginetest.New(t)
				db.Append(t, n+1)
				if head := db.Head(t); head != int64(n+1) {
					t.Errorf("head of database %s: %d, want %d", db.Name, head, n+1)
				}
				mu.Lock()
				defer mu.Unlock()
				names[db.Name] = true
			})
		}
	})
	if len(names) != many {
		t.Errorf("%d tests got %d databases", many, len(names))
	}
	var left int
	err := keep.Admin(t).QueryRow(t.Context(), `SELECT count(*) FROM pg_database WHERE datname = ANY ($1)`, slices.Collect(maps.Keys(names))).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d of their databases are left (%v), want none", left, err)
	}
}
