// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine"
	"example.com/bothy/engine/api"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
	core "example.com/bothy/engine/round"
)

// Which database may be worked: every pair of what is stored and what is there.
func TestHolds(t *testing.T) {
	t.Parallel()
	here := core.Identity{System: 7, Timeline: 3}
	none := []api.Reason(nil)
	for name, tt := range map[string]struct {
		seen        postgres.Recognition
		unguarded   bool
		environment string
		want        []api.Reason
	}{
		"the same":                    {postgres.Recognition{Stored: here, Current: here}, false, "", none},
		"another timeline":            {postgres.Recognition{Stored: here, Current: core.Identity{System: 7, Timeline: 4}}, false, "", []api.Reason{api.Unfinalized}},
		"an earlier timeline":         {postgres.Recognition{Stored: here, Current: core.Identity{System: 7, Timeline: 2}}, false, "", []api.Reason{api.Unfinalized}},
		"another system":              {postgres.Recognition{Stored: here, Current: core.Identity{System: 8, Timeline: 3}}, false, "", []api.Reason{api.Unfinalized}},
		"nothing stored":              {postgres.Recognition{Current: here}, false, "", none},
		"half of it stored":           {postgres.Recognition{Stored: core.Identity{System: 8}, Current: here}, false, "", none},
		"another, the guard is off":   {postgres.Recognition{Stored: here, Current: core.Identity{System: 8, Timeline: 3}}, true, "", none},
		"case 74: unreadable":         {postgres.Recognition{Stored: here, Lacks: []string{"GRANT"}}, false, "", []api.Reason{api.Unreadable}},
		"unreadable, nothing stored":  {postgres.Recognition{Lacks: []string{"GRANT"}}, false, "", []api.Reason{api.Unreadable}},
		"unreadable, guard off":       {postgres.Recognition{Stored: here, Lacks: []string{"GRANT"}}, true, "", none},
		"restored in parts":           {postgres.Recognition{Stored: here, Current: here, Apart: "a consumer stands above the head"}, false, "", []api.Reason{api.Unfinalized}},
		"in parts, the guard is off":  {postgres.Recognition{Stored: here, Current: here, Apart: "a consumer stands above the head"}, true, "", none},
		"a standby":                   {postgres.Recognition{Stored: here, Current: here, Recovering: true}, false, "", []api.Reason{api.Recovering}},
		"a standby, guard off":        {postgres.Recognition{Stored: here, Current: here, Recovering: true}, true, "", []api.Reason{api.Recovering}},
		"recovering on another":       {postgres.Recognition{Stored: here, Current: core.Identity{System: 8, Timeline: 3}, Recovering: true}, false, "", []api.Reason{api.Unfinalized, api.Recovering}},
		"the environment":             {postgres.Recognition{Stored: here, Current: here, Environment: "staging"}, false, "staging", none},
		"case 75: another of them":    {postgres.Recognition{Stored: here, Current: here, Environment: "production"}, false, "staging", []api.Reason{api.OtherEnvironment}},
		"another, guard off":          {postgres.Recognition{Stored: here, Current: here, Environment: "production"}, true, "staging", []api.Reason{api.OtherEnvironment}},
		"the file has no environment": {postgres.Recognition{Stored: here, Current: here, Environment: "production"}, false, "", none},
		"the database has none":       {postgres.Recognition{Stored: here, Current: here}, false, "staging", none},
	} {
		if diff := cmp.Diff(tt.want, engine.Holds(tt.seen, !tt.unguarded, tt.environment)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// harm is what makes a database one that is not worked, and what puts it right again.
type harm struct{ sections, spoil, mend string }

var harms = map[api.Reason]harm{
	api.Unfinalized:      {"", `UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id + 1`, `UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id - 1`},
	api.Unreadable:       {"", `REVOKE EXECUTE ON FUNCTION pg_catalog.pg_control_system() FROM PUBLIC, bothy_app`, `GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO bothy_app`},
	api.OtherEnvironment: {"  environment: test\n", `UPDATE bothy.instance SET environment = 'production'`, `UPDATE bothy.instance SET environment = 'test'`},
}

// wantOneHold checks that the log told of one hold, with what to do, and of its end.
func wantOneHold(t *testing.T, log string, reason api.Reason, advice string) {
	t.Helper()
	held, told := strings.Count(log, "engine does no work"), strings.Count(log, "level=ERROR")
	if held != 1 || told != 1 || strings.Count(log, "error.type="+string(reason)) != 1 || !strings.Contains(log, advice) {
		t.Errorf("the log tells %d times that it does no work, with %d errors; want one of each, with error.type=%s and %q:\n%s", held, told, reason, advice, log)
	}
	if n := strings.Count(log, "engine goes on"); n != 1 {
		t.Errorf("the log tells %d times that it goes on, want once:\n%s", n, log)
	}
	if strings.Contains(log, "level=WARN") {
		t.Errorf("the log warns:\n%s", log)
	}
}

var advices = map[api.Reason]string{
	api.Unfinalized:      "engine restore finalize",
	api.Unreadable:       "GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO",
	api.OtherEnvironment: "engine migrate up --new-environment",
}

// A process that starts on a database which it may not work stays, says why, changes nothing, and begins by itself
// once that is put right.
func TestStartHeld(t *testing.T) {
	t.Parallel()
	for reason, h := range harms {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			entries := []entry{{name: "push"}, {name: "mail"}}
			db := database(t, entries...)
			db.Exec(t, h.spoil)
			db.Append(t, 3)
			var log lines
			e := open(t, configureWith(t, db.AppURL, h.sections+listenHere, entries...), engine.WithLogger(log.logger()))
			base, stop := serving(t, e, engine.RoleAll)
			waitUntil(t, "it says why it is not ready", func() bool {
				return cmp.Equal(readiness(t, base).Reasons, []api.Reason{reason})
			})
			if err := e.Prepare(t.Context()); !isHeld(err) {
				t.Errorf("Prepare = %v, want a HeldError", err)
			}
			if status, _ := get(t, base+"/healthz"); status != 200 {
				t.Errorf("/healthz: %d, want 200: a restart would not help", status)
			}
			if n := count(t, db, `SELECT count(*) FROM bothy.event_consumer_cursors`); n != 0 {
				t.Errorf("%d cursors were made", n)
			}
			db.Exec(t, h.mend)
			waitUntil(t, "it is ready", isReady(t, base))
			db.Append(t, 2)
			waitUntil(t, "the new events have their jobs", func() bool { return db.Jobs(t, "test.push") == 4 && db.Jobs(t, "test.mail") == 4 })
			stop()
			wantOneHold(t, log.String(), reason, advices[reason])
		})
	}
}

// The same for a process that runs: whatever notices first, the log says it once for all consumers, and each role is
// not ready.
func TestRunHeld(t *testing.T) {
	t.Parallel()
	for reason, h := range harms {
		for _, role := range []engine.Role{engine.RoleWorker, engine.RoleAPI} {
			t.Run(string(reason)+" "+string(role), func(t *testing.T) {
				t.Parallel()
				entries := []entry{{name: "push"}, {name: "mail"}, {name: "index"}}
				db := database(t, entries...)
				var log lines
				e := open(t, configureWith(t, db.AppURL, h.sections+listenHere+"consumer: {poll_interval: 50ms}", entries...), engine.WithLogger(log.logger()))
				ensure(t, e)
				base, stop := serving(t, e, role)
				waitUntil(t, "it is ready", isReady(t, base))
				db.Exec(t, h.spoil)
				waitUntil(t, "it says why it is not ready", func() bool {
					return cmp.Equal(readiness(t, base).Reasons, []api.Reason{reason})
				})
				db.Append(t, 3)
				if n := db.Jobs(t, "test.push") + db.Jobs(t, "test.mail") + db.Jobs(t, "test.index"); n != 0 {
					t.Errorf("%d jobs although nothing may be worked", n)
				}
				db.Exec(t, h.mend)
				waitUntil(t, "it is ready again", isReady(t, base))
				if role == engine.RoleWorker {
					waitUntil(t, "the events have their jobs", func() bool { return db.Jobs(t, "test.index") == 6 && db.Jobs(t, "test.push") == 6 })
				}
				stop()
				if reason == api.Unreadable {
					return // whatever reads the identity fails before it is known why, and tells that
				}
				wantOneHold(t, log.String(), reason, advices[reason])
			})
		}
	}
}

// A round that is held does not ask the database.
func TestRoundHeld(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	e := open(t, configure(t, db, push))
	ensure(t, e)
	db.Exec(t, harms[api.Unfinalized].spoil)
	if err := e.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := wantRound(t, e, "push", "unfinalized")
	if !isHeld(o.Err) || !o.Held {
		t.Errorf("the round ended with %v, held %t; want a HeldError and true", o.Err, o.Held)
	}
}

// With the guard off it becomes ready on any database, and says once what that risks.
func TestRestoreGuardOff(t *testing.T) {
	t.Parallel()
	for _, reason := range []api.Reason{api.Unfinalized, api.Unreadable} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			push := entry{name: "push"}
			db := database(t, push)
			db.Exec(t, harms[reason].spoil)
			var log lines
			e := open(t, configureWith(t, db.AppURL, "  restore_guard: off\n"+listenHere, push), engine.WithLogger(log.logger()))
			base, stop := serving(t, e, engine.RoleAll)
			waitUntil(t, "it is ready", isReady(t, base))
			db.Append(t, 2)
			waitUntil(t, "the events have their jobs", func() bool { return db.Jobs(t, "test.push") == 4 })
			stop()
			if text := log.String(); strings.Count(text, "restore guard is off") != 1 || strings.Contains(text, "level=ERROR") {
				t.Errorf("want one warning and no error:\n%s", text)
			}
		})
	}
}

func isHeld(err error) bool {
	_, held := errors.AsType[*engine.HeldError](err)
	return held
}

// count is the number that a query gives.
func count(t *testing.T, db *enginetest.DB, query string) (n int) {
	t.Helper()
	if err := enginetest.Connect(t, db.AdminURL).QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// An event that was set aside gets no jobs on a database that may not be worked.
func TestRetryHeld(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push"})
	db.Exec(t, harms[api.Unfinalized].spoil)
	if _, err := e.RetryQuarantined(t.Context(), "push", 1, "Alex"); !isHeld(err) {
		t.Errorf("RetryQuarantined = %v, want a HeldError", err)
	}
}
