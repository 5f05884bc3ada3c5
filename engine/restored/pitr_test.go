// SPDX-License-Identifier: Apache-2.0

package restored_test

import (
	"testing"

	"example.com/bothy/engine/api"
	"example.com/bothy/engine/enginetest/cluster"
)

// Recovery to a point, both ways, with an engine that is there before anybody could finalize anything.
func TestStartAfterPITRWithoutFinalize(t *testing.T) {
	t.Parallel()
	primary, p := history(t)
	backup := primary.Backup(t)
	primary.Append(t, 2)
	delivered(t, p, primary, 7)
	primary.Point(t, "seven")
	primary.Append(t, 4) // they will be abandoned, and their jobs are there
	delivered(t, p, primary, 11)
	p.stop()
	primary.Archive(t)

	t.Run("promote at the target", func(t *testing.T) {
		t.Parallel()
		s := primary.Recover(t, backup, cluster.Target{Point: "seven"})
		heldUntilFinalized(t, run(t, configure(t, s, s.AppURL, "test")), s)
	})
	t.Run("pause, then promote under the engine", func(t *testing.T) {
		t.Parallel()
		s := primary.Recover(t, backup, cluster.Target{Point: "seven", Paused: true})
		p := run(t, configure(t, s, s.AppURL, "test"))
		p.held(t, api.Recovering)
		s.Promote(t)
		heldUntilFinalized(t, p, s)
	})
	t.Run("pause, then promote, then the engine", func(t *testing.T) {
		t.Parallel()
		s := primary.Recover(t, backup, cluster.Target{Point: "seven", Paused: true})
		s.Promote(t)
		heldUntilFinalized(t, run(t, configure(t, s, s.AppURL, "test")), s)
	})
}

// Case 75: a copy of production, dumped and restored on another server, does not begin to send with the same
// configuration.
func TestStartAfterDumpWithoutFinalize(t *testing.T) {
	t.Parallel()
	primary, p := history(t)
	p.stop()
	primary.Append(t, 2) // nobody has seen them: the copy must not either
	s := primary.Dump(t, consumers...)
	heldUntilFinalized(t, run(t, configure(t, s, s.AppURL, "test")), s)
}

// A copy in the same server has its identifier and its timeline, and is another database of it all the same.
func TestCopyInTheSameServer(t *testing.T) {
	t.Parallel()
	s, p := history(t)
	p.stop()
	s.Append(t, 2) // nobody has seen them: the copy must not either
	c := s.Copy(t, "copy")
	heldUntilFinalized(t, run(t, configure(t, c, c.AppURL, "test")), c)
}

// The database of the engine is replaced by an older state of it, under the same name, while the engine runs.
func TestDatabaseReplacedUnderTheEngine(t *testing.T) {
	t.Parallel()
	s, p := history(t)
	p.stop()
	older := s.Copy(t, "older")
	p = run(t, configure(t, s, s.AppURL, "test"))
	p.ready(t)
	s.Replace(t, older, s)
	heldUntilFinalized(t, p, s)
}
