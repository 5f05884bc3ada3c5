// SPDX-License-Identifier: Apache-2.0

package restored_test

import (
	"testing"

	"example.com/bothy/engine"
	"example.com/bothy/engine/api"
	"example.com/bothy/engine/enginetest/cluster"
	"example.com/bothy/engine/finalize"
)

// A move to another machine, by a base backup and the whole archive: with the manifest of the last moment the epoch and
// the cursors stay, and what nobody had seen yet is delivered there.
func TestRelocation(t *testing.T) {
	t.Parallel()
	primary, p := history(t)
	backup := primary.Backup(t)
	p.stop()
	primary.Append(t, 3)
	manifest, sessions, err := engine.RestoreManifest(t.Context(), configure(t, primary, primary.AppURL, "test"))
	if err != nil {
		t.Fatalf("manifest: %v (sessions %v)", err, sessions)
	}
	epoch := epochOf(t, primary)
	primary.Archive(t)
	s := primary.Recover(t, backup, cluster.Target{})
	primary.End(t)

	cfg := configure(t, s, s.AppURL, "test")
	moved := run(t, cfg)
	moved.held(t, api.Unfinalized)
	wantJobs(t, s, "jobs before it is known to be a move", numbers(epoch, 1, 5))
	other := manifest
	other.HeadSeq++
	report, err := engine.FinalizeRestore(t.Context(), cfg, engine.FinalizeOptions{Manifest: &other})
	if err != nil || report.End.Name != finalize.EndDifferent {
		t.Errorf("with another manifest: got end %q, %v, want different", report.End.Name, err)
	}
	moved.held(t, api.Unfinalized)
	report, err = engine.FinalizeRestore(t.Context(), cfg, engine.FinalizeOptions{Manifest: &manifest})
	if err != nil || report.End.Name != finalize.EndRelocated {
		t.Fatalf("relocation: got end %q, sessions %v, differences %v, %v, want relocated", report.End.Name, report.Sessions, report.Differences, err)
	}
	moved.ready(t)
	delivered(t, moved, s, 8)
	s.Append(t, 1)
	delivered(t, moved, s, 9)
	wantJobs(t, s, "jobs after the move", numbers(epoch, 1, 9))
}
