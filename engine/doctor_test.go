// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// treat runs the doctor.
func treat(t testing.TB, e *engine.Engine, o engine.DoctorOptions) engine.Diagnosis {
	t.Helper()
	d, err := engine.Doctor(t.Context(), e.Config(), o)
	if err != nil {
		t.Fatalf("Doctor: %v", err)
	}
	return d
}

// findings are the findings as one word each: wrong ones begin with !.
func findings(d engine.Diagnosis) []string {
	words := []string{}
	for _, f := range d.Findings {
		mark := ""
		if f.Severity == engine.SeverityWrong {
			mark = "!"
		}
		words = append(words, fmt.Sprintf("%s%s %s %d", mark, f.Code, f.Consumer, f.Count))
	}
	slices.Sort(words)
	return words
}

// jobs that a person may put into River's table, as SQL.
const (
	copyJob = `INSERT INTO public.river_job (args, kind, max_attempts, tags) SELECT args, kind, max_attempts, tags FROM public.river_job `
	another = `INSERT INTO public.river_job (args, kind, max_attempts, tags) SELECT args || '%s', kind, max_attempts, tags FROM public.river_job WHERE args @> '{"seq": 4, "recipient": "sam"}'`
	ago     = `UPDATE bothy.event_log SET occurred_at = occurred_at - interval '3 days' WHERE seq <= 10`
)

func TestDoctorFindsDamage(t *testing.T) {
	t.Parallel()
	const rename = `ALTER TABLE bothy.event_consumer_cursors DISABLE TRIGGER USER;`
	for name, c := range map[string]struct {
		damage     []string
		recipients string
		want       []string
		healthy    bool
	}{
		"nothing":                   {nil, "", []string{}, true},
		"a hole":                    {[]string{`DELETE FROM bothy.event_log WHERE seq IN (6, 7)`}, "", []string{"!hole  2", "!job_no_event push 4"}, false},
		"a hole at the end":         {[]string{`UPDATE bothy.event_seq SET seq = 12`}, "", []string{"!hole  2", "waiting push 2"}, false},
		"a counter behind":          {[]string{`UPDATE bothy.event_seq SET seq = 8`}, "", []string{"!counter_behind  2"}, false},
		"no counter":                {[]string{`DELETE FROM bothy.event_seq`}, "", []string{"!row_gone  1"}, false},
		"no identity":               {[]string{`DELETE FROM bothy.instance`}, "", []string{"!row_gone  1"}, false},
		"another server":            {[]string{`UPDATE bothy.instance SET pg_system_identifier = 1, pg_timeline_id = 1`}, "", []string{"!unfinalized  1"}, false},
		"a cursor ahead":            {[]string{`UPDATE bothy.event_consumer_cursors SET last_seq = 13`}, "", []string{"!cursor_ahead push 3"}, false},
		"a cursor set back":         {[]string{`UPDATE bothy.event_consumer_cursors SET last_seq = 8`}, "", []string{"!job_ahead push 4", "waiting push 2"}, false},
		"a job deleted":             {[]string{`DELETE FROM public.river_job WHERE args @> '{"seq": 2, "recipient": "alex"}'`}, "", []string{"!job_missing push 1"}, false},
		"a job doubled":             {[]string{copyJob + `WHERE args @> '{"seq": 3}'`}, "", []string{"!job_doubled push 2"}, false},
		"a job too many":            {[]string{fmt.Sprintf(another, `{"recipient": "robin"}`)}, "", []string{"!job_extra push 1"}, false},
		"a job of a removed event":  {[]string{fmt.Sprintf(another, `{"seq": 40}`)}, "", []string{"!job_ahead push 1"}, false},
		"a job of an older epoch":   {[]string{fmt.Sprintf(another, `{"epoch": "0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d"}`)}, "", []string{"!stale_epoch push 1"}, false},
		"such a job that is done":   {[]string{fmt.Sprintf(another, `{"epoch": "0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d"}`), `UPDATE public.river_job SET state = 'completed', finalized_at = now() WHERE args @> '{"epoch": "0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d"}'`}, "", []string{"stale_epoch push 1"}, true},
		"some are done, some not":   {[]string{fmt.Sprintf(another, `{"epoch": "0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d"}`), `UPDATE public.river_job SET state = 'completed', finalized_at = now() WHERE args @> '{"epoch": "0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d"}'`, fmt.Sprintf(another, `{"epoch": "0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d", "recipient": "robin"}`)}, "", []string{"!stale_epoch push 2", "stale_epoch push 1"}, false},
		"another environment":       {[]string{`UPDATE bothy.instance SET environment = 'production'`}, "", []string{"!held  1"}, false},
		"jobs that River deleted":   {[]string{`DELETE FROM public.river_job`, ago}, "", []string{"job_gone push 20"}, true},
		"but River keeps older":     {[]string{`DELETE FROM public.river_job WHERE args @> '{"seq": 2}'`, `UPDATE public.river_job SET state = 'completed', finalized_at = now() - interval '5 days'`, ago}, "", []string{"!job_missing push 2"}, false},
		"a start without an audit":  {[]string{`ALTER TABLE bothy.audit_events DISABLE TRIGGER USER; DELETE FROM bothy.audit_events`, `DELETE FROM public.river_job WHERE args @> '{"seq": 2}'`}, "", []string{"job_unknown push 2"}, true},
		"retention overtook it":     {[]string{`DELETE FROM bothy.event_log WHERE seq <= 8`, `UPDATE bothy.event_consumer_cursors SET last_seq = 5`, `DELETE FROM public.river_job WHERE (args ->> 'seq')::int > 5`}, "", []string{"!lost push 3", "waiting push 2"}, false},
		"jobs of another's":         {[]string{`INSERT INTO public.river_job (args, kind, max_attempts, tags) VALUES ('{"seq": 1.5, "recipient": 1, "epoch": "x"}', 'theirs', 1, '{theirs}'), ('{"seq": "z"}', 'test.push', 1, '{push}'), ('{}', 'x', 1, '{a,b}')`}, "", []string{"undeclared theirs 1"}, true},
		"a cursor of nobody":        {[]string{rename + `ALTER TABLE bothy.event_consumer_cursors DROP CONSTRAINT event_consumer_cursors_name_check; INSERT INTO bothy.event_consumer_cursors (name) VALUES ('former')`}, "", []string{"undeclared former 0"}, true},
		"a cursor deleted":          {[]string{`DELETE FROM bothy.event_consumer_cursors`}, "", []string{"no_cursor push 0"}, true},
		"a query says another":      {[]string{`CREATE OR REPLACE VIEW public.who AS SELECT 'alex' AS person`}, `{query: "SELECT b.seq, w.person AS recipient FROM batch b, public.who w"}`, []string{"rule_changed push 10"}, true},
		"a query's job is deleted":  {[]string{`DELETE FROM public.river_job WHERE args @> '{"seq": 2}'`}, `{query: "SELECT b.seq, w.person AS recipient FROM batch b, public.who w"}`, []string{"rule_changed push 2"}, true},
		"a query's job is doubled":  {[]string{copyJob + `WHERE args @> '{"seq": 3}'`}, `{query: "SELECT b.seq, w.person AS recipient FROM batch b, public.who w"}`, []string{"!job_doubled push 2"}, false},
		"a query that fails":        {[]string{`DROP VIEW public.who`}, `{query: "SELECT b.seq, w.person AS recipient FROM batch b, public.who w"}`, []string{"!rule_fails push 10"}, false},
		"a handler":                 {[]string{`DELETE FROM public.river_job WHERE args @> '{"seq": 2}'`}, "{handler: both}", []string{"handler push 0"}, true},
		"a handler's job doubled":   {[]string{copyJob + `WHERE args @> '{"seq": 3}'`}, "{handler: both}", []string{"!job_doubled push 2", "handler push 0"}, false},
		"a handler's event deleted": {[]string{`DELETE FROM bothy.event_log WHERE seq = 5`}, "{handler: both}", []string{"!hole  1", "!job_no_event push 2", "handler push 0"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, db := prepared(t, entry{name: "push", batch: 100, recipients: c.recipients})
			e.Config().Database.Environment = "test" // as the database says
			db.Exec(t, `CREATE VIEW public.who AS SELECT unnest('{alex,sam}'::text[]) AS person; GRANT SELECT ON public.who TO bothy_app`)
			register(t, e, "both", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
				return []string{"alex", "sam"}, nil
			})
			db.Append(t, 10)
			wantRound(t, e, "push", "processed")
			for _, sql := range c.damage {
				db.Exec(t, sql)
			}
			var seen []engine.Diagnosis
			for _, chunk := range []int64{0, 3} { // what is found must not depend on how it is cut
				d := treat(t, e, engine.DoctorOptions{Chunk: chunk})
				if diff := cmp.Diff(c.want, findings(d)); diff != "" && !(chunk == 3 && strings.Contains(name, "query that fails")) {
					t.Errorf("chunks of %d: findings (-want +got):\n%s%+v", chunk, diff, d)
				}
				if d.Healthy != c.healthy {
					t.Errorf("chunks of %d: healthy = %v, want %v", chunk, d.Healthy, c.healthy)
				}
				for _, f := range d.Findings {
					if f.What == "" || (f.Severity == engine.SeverityWrong && f.Do == "" && f.Code != engine.FindingRowGone) {
						t.Errorf("%s says %q and to do %q", f.Code, f.What, f.Do)
					}
				}
				seen = append(seen, d)
			}
			if diff := cmp.Diff(seen[0].Consumers, seen[1].Consumers); diff != "" && !strings.Contains(name, "query that fails") {
				t.Errorf("checkups of one chunk and of several (-one +several):\n%s", diff)
			}
		})
	}
}

// A consumer that was renamed, one that began later and one that reads only some types are compared with what they
// had to do.
func TestDoctorKnowsWhatWasDue(t *testing.T) {
	t.Parallel()
	push, late, some := entry{name: "push", batch: 100}, entry{name: "late", batch: 100}, entry{name: "some", batch: 100, types: "[message.*]"}
	db := database(t, push, late, some)
	first := open(t, configure(t, db, push, some))
	ensure(t, first)
	db.Append(t, 6)
	wantRound(t, first, "push", "processed")
	wantRound(t, first, "some", "processed")
	renamed := entry{name: "pull", batch: 100}
	e := open(t, configure(t, db, renamed, late, some))
	if _, err := engine.RenameConsumer(t.Context(), declare(t, db, renamed, late, some), "push", "pull", engine.ChangeOptions{By: "alex"}); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.AllowNames(t.Context(), db.OwnerURL, "bothy", []string{"late"}); err != nil {
		t.Fatal(err)
	}
	ensure(t, e)
	db.Append(t, 4)
	for _, name := range []string{"pull", "late", "some"} {
		wantRound(t, e, name, "processed")
	}
	d := treat(t, e, engine.DoctorOptions{Chunk: 4})
	if diff := cmp.Diff([]string{"before_start late 6"}, findings(d)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	at := int64(10)
	want := []engine.Checkup{
		{Consumer: "pull", Cursor: &at, Events: 10, Expected: 20, Found: 20},
		{Consumer: "late", Cursor: &at, Events: 4, Expected: 8, Found: 8},
		{Consumer: "some", Cursor: &at, Events: 10},
	}
	if diff := cmp.Diff(want, d.Consumers); diff != "" {
		t.Errorf("checkups (-want +got):\n%s", diff)
	}
	// one consumer, from a number on
	db.Exec(t, copyJob+`WHERE args @> '{"seq": 3}'`)
	if got := findings(treat(t, e, engine.DoctorOptions{Consumer: "late"})); !slices.Equal(got, []string{"before_start late 6"}) {
		t.Errorf("--consumer late finds %v", got)
	}
	if d := treat(t, e, engine.DoctorOptions{From: 4, Consumer: "pull"}); !d.Healthy || d.Consumers[0].Events != 7 {
		t.Errorf("from 4: healthy %v, %+v, want healthy and 7 events", d.Healthy, d.Consumers)
	}
	if _, err := engine.Doctor(t.Context(), e.Config(), engine.DoctorOptions{Consumer: "latte"}); err == nil || !strings.Contains(err.Error(), `did you mean "late"?`) {
		t.Errorf("an unknown consumer: %v", err)
	}
}

// What takes too long at once is compared in small parts, with the same result.
func TestDoctorComparesLessAtATime(t *testing.T) {
	t.Parallel()
	// for more events at a time than public.patience says, it would sleep for minutes
	slow := `{query: "SELECT b.seq, 'alex' AS recipient FROM batch b, (SELECT CASE WHEN (SELECT count(*) FROM batch) > n THEN pg_sleep(600)::text END FROM public.patience OFFSET 0) s"}`
	e, db := prepared(t, entry{name: "push", batch: 100, recipients: slow})
	db.Exec(t, `CREATE TABLE public.patience (n int); INSERT INTO public.patience VALUES (600); GRANT SELECT ON public.patience TO bothy_app`)
	db.Append(t, 1000)
	for range 10 {
		wantRound(t, e, "push", "processed")
	}
	db.Exec(t, copyJob+`WHERE args @> '{"seq": 700}'`)
	var steps []string
	o := engine.DoctorOptions{Timeout: 5 * time.Second, Progress: func(done, total int64) { steps = append(steps, fmt.Sprintf("%d/%d", done, total)) }}
	d := treat(t, e, o)
	if diff := cmp.Diff([]string{"!job_doubled push 1"}, findings(d)); diff != "" {
		t.Errorf("findings (-want +got):\n%s%+v", diff, d)
	}
	if got := d.Consumers[0]; got.Events != 1000 || got.Found != 1001 {
		t.Errorf("%+v, want 1000 events and 1001 jobs", got)
	}
	if diff := cmp.Diff([]string{"0/1000", "1000/1000"}, steps); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	db.Exec(t, `UPDATE public.patience SET n = 10`)
	o.Timeout = 2 * time.Second
	if got := findings(treat(t, e, o)); !slices.Equal(got, []string{"!rule_fails push 500"}) {
		t.Errorf("a rule that is too slow for anything: %v", got)
	}
}

// Looking up the jobs of each event finds what reading all jobs finds.
func TestExaminerByNumber(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push", batch: 100})
	db.Append(t, 30)
	wantRound(t, e, "push", "processed")
	db.Exec(t, copyJob+`WHERE args @> '{"seq": 3}'`)
	db.Exec(t, `DELETE FROM public.river_job WHERE args @> '{"seq": 7, "recipient": "sam"}'`)
	db.Exec(t, `DELETE FROM bothy.event_log WHERE seq = 9`)
	consumer := engine.Consumers(e.Config())[0]
	stretch := postgres.Stretch{Span: engine.Span{First: 2, Last: 20}, Tag: "push", Kinds: []string{"test.push"}}
	want, err := e.Store().Examiner("public").Compare(t.Context(), consumer, stretch)
	if err != nil || len(want.Kinds) != 3 {
		t.Fatalf("%+v, %v: want three kinds of differences", want, err)
	}
	stretch.ByNumber = true
	got, err := e.Store().Examiner("public").Compare(t.Context(), consumer, stretch)
	if err != nil {
		t.Fatal(err)
	}
	sorted := cmpopts.SortSlices(func(a, b postgres.Difference) bool { return a.Mismatch < b.Mismatch })
	if diff := cmp.Diff(want, got, sorted); diff != "" {
		t.Errorf("by number (-all jobs +by number):\n%s", diff)
	}
}

// The doctor may look while rounds run: what they do meanwhile is no finding.
func TestDoctorBesideRounds(t *testing.T) {
	t.Parallel()
	push, index := entry{name: "push"}, entry{name: "index", batch: 3}
	db := database(t, push, index)
	e := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}", push, index))
	ensure(t, e)
	runInBackground(t, e)
	conn := enginetest.Connect(t, db.ProducerURL)
	for range 20 {
		if _, err := conn.Exec(t.Context(), `SELECT bothy.append_events((SELECT jsonb_agg('{"type": "order.created"}'::jsonb) FROM generate_series(1, 10)))`); err != nil {
			t.Fatal(err)
		}
		if d := treat(t, e, engine.DoctorOptions{Chunk: 7}); !d.Healthy {
			t.Fatalf("not healthy beside running rounds: %+v", d)
		}
	}
}

// What is set aside has no jobs, is no damage, and does not keep the doctor from the rest; neither does an event that
// was given up, also under an earlier name of the consumer.
func TestDoctorKnowsWhatIsSetAside(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: brittle, extra: aside, batch: 10}
	db := breakable(t, push)
	e := open(t, configureWith(t, db.AppURL, quickly, push))
	ensure(t, e)
	db.Append(t, 12)
	db.Exec(t, `INSERT INTO public.broken VALUES (4), (9)`)
	stop := runInBackground(t, e)
	waitUntil(t, "the consumer has passed everything", func() bool { return cursorOf(t, db, "push") == 12 })
	stop()
	if _, err := e.DropQuarantined(t.Context(), "push", 4, "the order was a test", "alex"); err != nil {
		t.Fatal(err)
	}
	want := []string{"quarantined push 1"}
	if diff := cmp.Diff(want, findings(treat(t, e, engine.DoctorOptions{}))); diff != "" {
		t.Errorf("one set aside, one given up (-want +got):\n%s", diff)
	}
	db.Exec(t, `DELETE FROM public.river_job WHERE args @> '{"seq": 5, "recipient": "sam"}'`)
	if got := findings(treat(t, e, engine.DoctorOptions{})); !slices.Contains(got, "rule_changed push 1") {
		t.Errorf("a job is gone: got %v, want it told", got)
	}
}
