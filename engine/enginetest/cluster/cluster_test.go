// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"testing"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/enginetest/cluster"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/round"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// seen is what the engine's role sees of a server.
func seen(t *testing.T, s *cluster.Server) postgres.Recognition {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgres.Options{URL: s.AppURL, Schema: enginetest.Schema, MaxConns: 1, RestoreGuard: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r, err := store.Recognize(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func want(t *testing.T, s *cluster.Server, what string, identity round.Identity, recovering bool, head int64) {
	t.Helper()
	r := seen(t, s)
	if r.Current != identity || r.Recovering != recovering {
		t.Errorf("%s: %v, recovering %t; want %v, %t", what, r.Current, r.Recovering, identity, recovering)
	}
	if got := s.Head(t); got != head {
		t.Errorf("%s: the head is %d, want %d", what, got, head)
	}
}

// What each way to make a server does to its identity, seen at once.
func TestIdentityOfServers(t *testing.T) {
	t.Parallel()
	primary := cluster.Start(t)
	primary.Append(t, 2)
	here := seen(t, primary).Current
	if r := seen(t, primary); r.Stored != here || !here.Known() || here.Timeline != 1 || r.Recovering || r.Environment != "test" {
		t.Fatalf("a new server: %+v", r)
	}
	next := round.Identity{System: here.System, Timeline: 2, Database: here.Database}
	backup := primary.Backup(t)
	primary.Append(t, 3)
	primary.Point(t, "five")
	primary.Append(t, 4)
	primary.Archive(t)

	t.Run("promote at the target", func(t *testing.T) {
		t.Parallel()
		want(t, primary.Recover(t, backup, cluster.Target{Point: "five"}), "recovered", next, false, 5)
	})
	t.Run("pause, then promote", func(t *testing.T) {
		t.Parallel()
		r := primary.Recover(t, backup, cluster.Target{Point: "five", Paused: true})
		want(t, r, "paused", here, true, 5)
		r.Promote(t)
		want(t, r, "promoted", next, false, 5)
	})
	t.Run("to the end", func(t *testing.T) {
		t.Parallel()
		want(t, primary.Recover(t, backup, cluster.Target{}), "recovered", next, false, 9)
	})
	t.Run("a standby", func(t *testing.T) {
		t.Parallel()
		s := primary.Standby(t, backup)
		s.CaughtUp(t, primary)
		want(t, s, "following", here, true, 9)
		s.Promote(t)
		want(t, s, "promoted", next, false, 9)
	})
	t.Run("a clone", func(t *testing.T) {
		t.Parallel()
		if r := seen(t, primary.Clone(t, backup)); r.Current != here || r.Recovering {
			t.Errorf("a clone: %+v, want it to be taken for the server that it was", r)
		}
	})
	t.Run("a dump", func(t *testing.T) {
		t.Parallel()
		s := primary.Dump(t)
		r := seen(t, s)
		if r.Current.System == here.System || r.Current.Timeline != 1 || r.Stored != here || s.Head(t) != 9 {
			t.Errorf("a dump of %v: %+v with the head %d", here, r, s.Head(t))
		}
	})
}
