// SPDX-License-Identifier: Apache-2.0

package restored_test

import (
	"slices"
	"testing"

	"example.com/bothy/engine"
	"example.com/bothy/engine/api"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/finalize"
)

// A standby that is promoted under an engine which stayed connected to it: there is no moment in between.
func TestStandbyPromotedUnderTheEngine(t *testing.T) {
	t.Parallel()
	primary, p := history(t)
	standby := primary.Standby(t, primary.Backup(t))
	standby.CaughtUp(t, primary)
	p.stop()
	waiting := run(t, configure(t, standby, standby.AppURL, "test"))
	waiting.held(t, api.Recovering)
	saysHeld(t, configure(t, standby, standby.AppURL, "test"), api.Recovering)
	standby.Promote(t)
	heldUntilFinalized(t, waiting, standby)
}

// saysHeld checks what the commands are told that look while no engine works.
func saysHeld(t *testing.T, cfg *config.Config, reason api.Reason) {
	t.Helper()
	e, err := engine.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	o, err := e.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if held, err := e.Held(t.Context(), o); err != nil || held == nil || !slices.Equal(held.Reasons, []api.Reason{reason}) {
		t.Errorf("status: held %v, %v, want the reason %s", held, err, reason)
	}
	d, err := engine.Doctor(t.Context(), cfg, engine.DoctorOptions{})
	if err != nil || d.Healthy || len(d.Findings) == 0 || d.Findings[0].Code != engine.FindingHeld {
		t.Errorf("doctor: %+v, %v, want the finding %s first", d, err, engine.FindingHeld)
	}
}

// Case 70: a failover that loses commits. What was delivered is lost and its numbers are used again: never under the
// old epoch. The engine runs all the while, and its address leads to another server from one moment to the next.
func TestFailoverThatLosesCommits(t *testing.T) {
	t.Parallel()
	primary, first := history(t)
	first.stop()
	proxy := enginetest.NewProxy(t, primary.AppURL)
	p := run(t, configure(t, primary, proxy.URL, "test"))
	p.ready(t)
	standby := primary.Standby(t, primary.Backup(t))
	standby.CaughtUp(t, primary)
	standby.Exec(t, `SELECT pg_wal_replay_pause()`)
	standby.Exec(t, `ALTER SYSTEM SET primary_conninfo = ''`)
	primary.Append(t, 3)
	delivered(t, p, primary, 8)

	primary.End(t)
	standby.Exec(t, `SELECT pg_wal_replay_resume()`)
	standby.Promote(t)
	standby.Append(t, 2) // the numbers of events that were delivered, or what is left of them
	proxy.Redirect(t, standby.AppURL)
	heldUntilFinalized(t, p, standby)
}

// Case 72: a physical copy that goes on as the server that it was cannot be told from it. The environment can.
func TestSnapshotClone(t *testing.T) {
	t.Parallel()
	primary, p := history(t)
	p.stop()
	clone := primary.Clone(t, primary.Backup(t))
	t.Run("the same configuration", func(t *testing.T) {
		copied := run(t, configure(t, clone, clone.AppURL, "test"))
		copied.ready(t) // the limit that docs/restore.md names
		copied.stop()
	})
	t.Run("another environment", func(t *testing.T) {
		before := jobs(t, clone)
		cfg := configure(t, clone, clone.AppURL, "staging")
		staging := run(t, cfg)
		staging.held(t, api.OtherEnvironment)
		clone.Append(t, 1)
		staging.held(t, api.OtherEnvironment)
		wantJobs(t, clone, "jobs in another environment", before)
		report, err := engine.FinalizeRestore(t.Context(), cfg, engine.FinalizeOptions{})
		if err != nil || report.End.Name != finalize.EndForeign {
			t.Errorf("finalize: got end %q, %v, want foreign: the operator has to say what it is", report.End.Name, err)
		}
		if report, err = engine.FinalizeRestore(t.Context(), cfg, engine.FinalizeOptions{Force: true}); err != nil || report.End.Name != finalize.EndFinalized {
			t.Fatalf("finalize by force: got end %q, %v, want finalized", report.End.Name, err)
		}
		staging.ready(t)
	})
}
