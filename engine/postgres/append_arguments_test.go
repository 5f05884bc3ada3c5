// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
)

func TestAppendChecksItsArguments(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.ProducerURL)
	long := strings.Repeat("é", 257)
	tests := []struct{ call, want string }{
		{`append_event(NULL, 'r', 'i', '{}', '{}')`, `append_event: type is missing`},
		{`append_event('', 'r', 'i', '{}', '{}')`, `append_event: type is empty`},
		{`append_event('` + long + `', 'r', 'i', '{}', '{}')`, `type has 257 characters: at most 256`},
		{`append_event('a b', 'r', 'i', '{}', '{}')`, `type is "a b": blanks and control characters are not allowed`},
		{`append_event(E'a\u00a0b', 'r', 'i', '{}', '{}')`, `blanks and control characters`},
		{`append_event(E'a\u0007', 'r', 'i', '{}', '{}')`, `type is "a\u0007"`},
		{`append_event('a', 'r', 'i', '{x,NULL}', '{}')`, `audience holds a null`},
		{`append_event('a', 'r', 'i', '{x,""}', '{}')`, `audience holds an empty text`},
		{`append_event('a', 'r', 'i', '{{x},{y}}', '{}')`, `audience has more than one dimension`},
		{`append_event('a', 'r', 'i', '{}', '{}', 'infinity')`, `event_time is infinity`},
		{`append_events(NULL)`, `events is null: give a JSON array`},
		{`append_events('{"type": "a"}')`, `events is object: give a JSON array`},
		{`append_events('[{"type": "a"}, 5]')`, `events[1] is number: every element is an object`},
		{`append_events('[{"type": "a", "typ": 1}]')`, `events[0] has the unknown key "typ": the keys are type, resource`},
		{`append_events('[{}]')`, `events[0].type is missing`},
		{`append_events('[{"type": null}]')`, `events[0].type is missing`},
		{`append_events('[{"type": 5}]')`, `events[0].type is number: give a string`},
		{`append_events('[{"type": "a\tb"}]')`, `events[0].type is "a\tb": blanks`},
		{`append_events('[{"type": "a", "resource": {}}]')`, `events[0].resource is object: give a string`},
		{`append_events('[{"type": "a", "audience": "sam"}]')`, `events[0].audience is string: give an array of texts`},
		{`append_events('[{"type": "a", "audience": ["sam", 5]}]')`, `events[0].audience[1] is number`},
		{`append_events('[{"type": "a", "audience": ["sam", null]}]')`, `events[0].audience[1] is null`},
		{`append_events('[{"type": "a", "audience": [""]}]')`, `events[0].audience[0] is string (empty)`},
		{`append_events('[{"type": "a", "id": "42"}]')`, `events[0].id is "42": give a UUID`},
		{`append_events('[{"type": "a", "event_time": "yesterday"}]')`, `events[0].event_time is "yesterday": give a time with its zone`},
		{`append_events('[{"type": "a", "event_time": "2026-01-31T09:30:00"}]')`, `give a time with its zone`},
		{`append_events('[{"type": "a", "event_time": "2026-02-30T09:30:00Z"}]')`, `events[0].event_time is "2026-02-30T09:30:00Z"`},
		{`append_events('[{"type": "a", "event_time": "2026-01-30T09:30:00+99:00"}]')`, `events[0].event_time is "2026-01-30T09:30:00+99:00"`},
	}
	for _, test := range tests {
		_, err := conn.Exec(t.Context(), `SELECT bothy.`+test.call)
		wantCode(t, err, "22023", test.want)
	}
	wantTypes(t, db)
	// Case 47: the server itself refuses what jsonb cannot hold.
	_, err := conn.Exec(t.Context(), `SELECT bothy.append_event('a', NULL, NULL, NULL, '"\u0000"')`)
	wantCode(t, err, "22P05", "")
}

func TestAppendStoresWhatItIsGiven(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.ProducerURL)
	must(t, conn, `SELECT bothy.append_event('order.created', 'order', '42', '{alex,"s a,m"}', '{"a": 1}', '2026-01-31T09:30:00Z', '0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d')`)
	must(t, conn, `SELECT bothy.append_events('[
	{"type": "order.created", "resource": "order", "resource_id": "42", "audience": ["alex", "s a,m"], "payload": {"a": 1}, "event_time": "2026-01-31T10:30:00+01:00", "id": "0197A4C0-7a5e-7cc1-8f5e-3b1f0a2b4c6d"}]')`)
	must(t, conn, `SELECT bothy.append_event('bare', NULL, NULL, NULL, NULL)`)
	must(t, conn, `SELECT bothy.append_events('[{"type": "bare", "resource": null, "resource_id": null, "audience": null, "payload": null, "event_time": null, "id": null}]')`)
	must(t, conn, `SELECT bothy.append_events('[]')`)
	rows, err := db.Owner(t).Query(t.Context(), `SELECT concat_ws(' | ', seq, type, resource, resource_id, audience, payload, event_time AT TIME ZONE 'UTC', CASE WHEN resource <> '' THEN id END) ||
	CASE WHEN occurred_at BETWEEN now() - interval '5 min' AND clock_timestamp() THEN '' ELSE ' occurred at ' || occurred_at END FROM bothy.event_log ORDER BY seq`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	whole := ` | order.created | order | 42 | {alex,"s a,m"} | {"a": 1} | 2026-01-31 09:30:00 | 0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d`
	want := []string{"1" + whole, "2" + whole, `3 | bare |  |  | {} | {}`, `4 | bare |  |  | {} | {}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestAppendManyKeepsOrder(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	const many = 10_000
	var ids []string
	err := db.Producer(t).QueryRow(t.Context(), `SELECT bothy.append_events((SELECT jsonb_agg(jsonb_build_object('type', 't.' || i, 'event_time', '2026-01-31T09:30:00Z') ORDER BY i) FROM generate_series(1, $1) i))::text[]`, many).Scan(&ids)
	if err != nil {
		t.Fatal(err)
	}
	var wrong int
	err = db.Owner(t).QueryRow(t.Context(), `SELECT count(*) FROM unnest($1::uuid[]) WITH ORDINALITY x(id, i) FULL JOIN bothy.event_log l USING (id) WHERE l.seq IS DISTINCT FROM x.i OR l.type <> 't.' || x.i`, ids).Scan(&wrong)
	if err != nil || wrong != 0 || len(ids) != many {
		t.Errorf("%d ids; events out of place: got %d, %v, want none", len(ids), wrong, err)
	}
}
