// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

func verifyAudit(t *testing.T, db *enginetest.DB, manifest *postgres.AuditHead) postgres.AuditReport {
	t.Helper()
	report, err := postgres.VerifyAudit(t.Context(), db.AppURL, enginetest.Schema, manifest)
	if err != nil {
		t.Fatalf("VerifyAudit: %v", err)
	}
	return report
}

func auditHead(t *testing.T, db *enginetest.DB) postgres.AuditHead {
	t.Helper()
	head, err := postgres.ReadAuditHead(t.Context(), db.App(t), enginetest.Schema)
	if err != nil {
		t.Fatalf("ReadAuditHead: %v", err)
	}
	return head
}

// chain is a database with n rows in its audit.
func chain(t *testing.T, n int) *enginetest.DB {
	t.Helper()
	db := enginetest.New(t)
	for i := range n {
		db.Exec(t, appendOneDeed, fmt.Sprintf("consumer-%d", i+1))
	}
	return db
}

// Case 79: fifty writers at once, on an empty table, make one chain.
func TestAuditChainCannotFork(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	owner := db.Owner(t)
	const writers = 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			if _, err := owner.Exec(context.Background(), appendOneDeed, fmt.Sprintf("c-%d", w)); err != nil {
				t.Errorf("append: %v", err)
			}
		})
	}
	wg.Wait()
	report := verifyAudit(t, db, nil)
	if report.Rows != writers || len(report.Flaws) != 0 || report.Head.Seq != writers {
		t.Errorf("got %d rows up to %d with the flaws %v, want %d and none", report.Rows, report.Head.Seq, report.Flaws, writers)
	}
	if diff := cmp.Diff(auditHead(t, db), report.Head); diff != "" {
		t.Errorf("the head that is read and the one that the chain ends in differ:\n%s", diff)
	}
}

// What somebody does who can do everything, and what is said of it.
func TestAuditVerifyTellsApart(t *testing.T) {
	t.Parallel()
	const (
		changed = `UPDATE bothy.audit_events SET `
		// the hash of a row's content, as the database says it
		sum = `bothy.audit_hash(prev, seq, at, actor, client, action, subject, details_text)`
		put = `INSERT INTO bothy.audit_events (seq, at, actor, client, action, subject, details, details_text, prev, hash)
SELECT %d, at, actor, client, action, 'forged', details, details_text, %s, bothy.audit_hash(%s, %d, at, actor, client, action, 'forged', details_text) FROM bothy.audit_events WHERE seq = 2`
		fresh = `sha256('elsewhere')`
		tail  = `(SELECT hash FROM bothy.audit_events WHERE seq = 7)`
	)
	insert := func(seq int, prev string) string { return fmt.Sprintf(put, seq, prev, prev, seq) }
	one := func(code postgres.AuditFlawCode, first, last int64) []postgres.AuditFlaw {
		return []postgres.AuditFlaw{{Code: code, First: first, Last: last}}
	}
	for name, tt := range map[string]struct {
		harm     string
		want     []postgres.AuditFlaw
		manifest bool // it takes the manifest to see it
	}{
		"nothing":                    {``, nil, false},
		"a subject":                  {changed + `subject = 'other' WHERE seq = 4`, one(postgres.AuditChanged, 4, 4), false},
		"an actor":                   {changed + `actor = 'somebody' WHERE seq = 1`, one(postgres.AuditChanged, 1, 1), false},
		"the time, by a microsecond": {changed + `at = at + interval '1 microsecond' WHERE seq = 7`, one(postgres.AuditChanged, 7, 7), false},
		"the details alone":          {changed + `details = '{"reason": "another"}' WHERE seq = 4`, one(postgres.AuditChanged, 4, 4), false},
		"the text of the details":    {changed + `details_text = '{"reason": "another"}' WHERE seq = 4`, one(postgres.AuditChanged, 4, 4), false},
		"a hash":                     {changed + `hash = sha256('x') WHERE seq = 4`, one(postgres.AuditChanged, 4, 4), false},
		"a row with a new hash":      {changed + `subject = 'other', hash = bothy.audit_hash(prev, seq, at, actor, client, action, 'other', details_text) WHERE seq = 4`, one(postgres.AuditForged, 4, 5), false},
		"a row removed":              {`DELETE FROM bothy.audit_events WHERE seq = 4`, one(postgres.AuditRemoved, 4, 4), false},
		"rows removed":               {`DELETE FROM bothy.audit_events WHERE seq IN (3, 4, 5)`, one(postgres.AuditRemoved, 3, 5), false},
		"the first row removed":      {`DELETE FROM bothy.audit_events WHERE seq = 1`, one(postgres.AuditRemoved, 1, 1), false},
		"the tail removed":           {`DELETE FROM bothy.audit_events WHERE seq > 5`, one(postgres.AuditTailRemoved, 6, 7), false},
		"the tail and the counter":   {`DELETE FROM bothy.audit_events WHERE seq > 5; UPDATE bothy.audit_seq SET seq = 5`, one(postgres.AuditTailRemoved, 6, 7), true},
		"everything":                 {`DELETE FROM bothy.audit_events; UPDATE bothy.audit_seq SET seq = 0`, one(postgres.AuditTailRemoved, 1, 7), true},
		"a row put in at the end":    {insert(8, tail), one(postgres.AuditAbove, 8, 8), false},
		"the counter put back":       {`UPDATE bothy.audit_seq SET seq = 3`, one(postgres.AuditAbove, 4, 7), false},
		"the counter at its start":   {`UPDATE bothy.audit_seq SET seq = 0`, one(postgres.AuditAbove, 1, 7), false},
		"put back, and a row changed": {
			`UPDATE bothy.audit_seq SET seq = 3; ` + changed + `subject = 'other' WHERE seq = 5`,
			append(one(postgres.AuditAbove, 4, 7), one(postgres.AuditChanged, 5, 5)...), false,
		},
		"put back, and a row removed": {
			`UPDATE bothy.audit_seq SET seq = 3; DELETE FROM bothy.audit_events WHERE seq = 5`,
			append(one(postgres.AuditAbove, 4, 7), one(postgres.AuditRemoved, 5, 5)...), false,
		},
		"put back, and a stranger": {
			`UPDATE bothy.audit_seq SET seq = 3; ` + insert(8, fresh),
			append(one(postgres.AuditAbove, 4, 7), one(postgres.AuditForged, 7, 8)...), false,
		},
		"a stranger above the counter": {insert(8, fresh), one(postgres.AuditForged, 8, 8), false},
		"put back, and written anew": {
			`DELETE FROM bothy.audit_events; UPDATE bothy.audit_seq SET seq = 0;
DO $$ BEGIN FOR i IN 1..7 LOOP PERFORM bothy.append_audit('consumer.retired', 'other', '{}'); END LOOP; END $$; UPDATE bothy.audit_seq SET seq = 3`,
			append(one(postgres.AuditAbove, 4, 7), one(postgres.AuditRewritten, 7, 7)...), true,
		},
		"a stranger at the end":        {insert(8, fresh) + `; UPDATE bothy.audit_seq SET seq = 8`, one(postgres.AuditForged, 7, 8), false},
		"a stranger in the middle":     {`DELETE FROM bothy.audit_events WHERE seq = 4; ` + insert(4, fresh), one(postgres.AuditForged, 4, 4), false},
		"a stranger without a hash":    {changed + `prev = ` + fresh + `, subject = 'forged', hash = sha256('no') WHERE seq = 4`, one(postgres.AuditForged, 4, 4), false},
		"two rows with changed places": {changed + `seq = -seq WHERE seq IN (4, 5); ` + changed + `seq = CASE seq WHEN -4 THEN 5 ELSE 4 END WHERE seq < 0`, append(one(postgres.AuditForged, 4, 4), one(postgres.AuditForged, 5, 5)...), false},
		"all of it written anew": {`DELETE FROM bothy.audit_events; UPDATE bothy.audit_seq SET seq = 0;
DO $$ BEGIN FOR i IN 1..7 LOOP PERFORM bothy.append_audit('consumer.retired', 'other', '{}'); END LOOP; END $$`, one(postgres.AuditRewritten, 7, 7), true},
		"a changed row, and the function that hashes": {`CREATE OR REPLACE FUNCTION bothy.audit_hash(prev bytea, seq bigint, at timestamptz, actor text, client text, action text, subject text, details text) RETURNS bytea
LANGUAGE sql STABLE AS 'SELECT sha256(subject::bytea)'; ` + changed + `subject = 'other' WHERE seq = 4; ` + changed + `hash = ` + sum + ` WHERE seq = 4`, one(postgres.AuditChanged, 4, 4), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := chain(t, 7)
			manifest := auditHead(t, db)
			db.Exec(t, `ALTER TABLE bothy.audit_events DISABLE TRIGGER audit_only_grows`)
			db.Exec(t, `ALTER TABLE bothy.audit_events DROP CONSTRAINT audit_events_seq_check`)
			if tt.harm != "" {
				if err := postgres.RunScript(t.Context(), db.AdminURL, tt.harm); err != nil {
					t.Fatal(err)
				}
			}
			alone := tt.want
			if tt.manifest {
				alone = nil
				for _, f := range tt.want {
					if f.Code == postgres.AuditAbove { // the chain alone tells that
						alone = append(alone, f)
					}
				}
			}
			if diff := cmp.Diff(alone, verifyAudit(t, db, nil).Flaws); diff != "" {
				t.Errorf("without the manifest (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, verifyAudit(t, db, &manifest).Flaws); diff != "" {
				t.Errorf("against the manifest (-want +got):\n%s", diff)
			}
		})
	}
}

// The hash that SQL makes and the one that Go makes are the same, whatever stands in a row and however the session
// that writes it is set.
func TestAuditHashOfGoAndSQL(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.OwnerURL)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test that can be repeated
	pieces := []string{
		"a", "'", `"`, `\`, "\n", "\t", "\x01", "\x7f", ",", ":", "3:abc,", "ä", "\u0301", "日本", "\U0001F600", "\u202e", "\ufeff", "$1", "%", " ",
	}
	text := func() string {
		var b strings.Builder
		for range 1 + random.IntN(12) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		return b.String()
	}
	numbers := []string{
		"0", "-0", "1.0", "1e400", "-1.50e-300", "123456789012345678901234567890", "0.1000", "1E+2", "9223372036854775808",
	}
	settings := []string{
		`SET timezone = 'Asia/Kathmandu'`, `SET datestyle = 'German'`, `SET intervalstyle = 'iso_8601'`, `SET bytea_output = 'escape'`,
		`SET timezone = 'America/St_Johns'`, `SET extra_float_digits = -15`, `RESET ALL`, `SET standard_conforming_strings = off`,
	}
	const rows = 200
	for range rows {
		must(t, conn, settings[random.IntN(len(settings))])
		key, err := json.Marshal(text())
		if err != nil {
			t.Fatal(err)
		}
		value, err := json.Marshal(text())
		if err != nil {
			t.Fatal(err)
		}
		details := fmt.Sprintf(`{%s: [%s, {"n": %s}], "n": %s}`, key, value, numbers[random.IntN(len(numbers))], numbers[random.IntN(len(numbers))])
		name := text()
		if !utf8.ValidString(name) {
			t.Fatal("the test makes invalid text")
		}
		must(t, conn, `SELECT set_config('application_name', $1, false)`, text())
		must(t, conn, `SELECT bothy.append_audit('consumer.renamed', $1, $2)`, name, details)
	}
	report := verifyAudit(t, db, nil)
	if report.Rows != rows || len(report.Flaws) != 0 {
		t.Errorf("%d rows with the flaws %v, want %d and none", report.Rows, report.Flaws, rows)
	}
	seen := 0
	err := postgres.ListAudit(t.Context(), db.AppURL, enginetest.Schema, 1, func(r postgres.AuditRow) error {
		seen++
		if !bytes.Equal(r.Sum(), r.Hash) {
			return fmt.Errorf("row %d: Go gives %x, SQL gave %x, of %+v", r.Seq, r.Sum(), r.Hash, r)
		}
		return nil
	})
	if err != nil || seen != rows {
		t.Errorf("%d rows listed, %v", seen, err)
	}
}

// How the database or the role writes dates and bytes is of no account to who reads the audit.
func TestAuditIsReadWhateverTheSettings(t *testing.T) {
	t.Parallel()
	db := chain(t, 3)
	want := auditHead(t, db)
	for _, setting := range []string{
		`DATABASE %[1]s SET datestyle = 'German'`, `DATABASE %[1]s SET intervalstyle = 'sql_standard'`, `DATABASE %[1]s SET bytea_output = 'escape'`,
		`DATABASE %[1]s SET timezone = 'Asia/Kathmandu'`, `ROLE bothy_app IN DATABASE %[1]s SET datestyle = 'SQL, DMY'`,
	} {
		db.Exec(t, fmt.Sprintf(`ALTER `+setting, db.Name))
		report := verifyAudit(t, db, &want)
		if diff := cmp.Diff(postgres.AuditReport{Rows: 3, Head: want}, report); diff != "" {
			t.Errorf("%s: verify (-want +got):\n%s", setting, diff)
		}
		err := postgres.ListAudit(t.Context(), db.AppURL, enginetest.Schema, 1, func(r postgres.AuditRow) error {
			if !bytes.Equal(r.Sum(), r.Hash) {
				return fmt.Errorf("row %d is read as %+v", r.Seq, r)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: list: %v", setting, err)
		}
		for _, mode := range []string{"exec", "simple_protocol", "cache_statement"} {
			conn := enginetest.Connect(t, db.AppURL+"&default_query_exec_mode="+mode)
			head, err := postgres.ReadAuditHead(t.Context(), conn, enginetest.Schema)
			if diff := cmp.Diff(want, head); err != nil || diff != "" {
				t.Errorf("%s: the head in the mode %s: %v (-want +got):\n%s", setting, mode, err, diff)
			}
		}
		inspector, err := postgres.Inspect(t.Context(), postgres.InspectOptions{
			MigrateOptions: postgres.MigrateOptions{AdminURL: db.AdminURL, Schema: enginetest.Schema, JobsSchema: "public", App: enginetest.AppRole, Owner: enginetest.OwnerRole}, URL: db.AppURL,
		})
		if err != nil {
			t.Fatalf("%s: inspect: %v", setting, err)
		}
		inspector.Close()
	}
}

// A counter that a partial restore left behind is told, before the table says it in its own words; a piece that is
// missing keeps nobody from writing.
func TestAuditAppendAfterDamage(t *testing.T) {
	t.Parallel()
	db := chain(t, 3)
	db.Exec(t, `UPDATE bothy.audit_seq SET seq = 1`)
	_, err := db.Owner(t).Exec(t.Context(), appendOneDeed, "late")
	wantCode(t, err, postgres.CodeNoCounter, "the audit holds row 3, and its counter stood at 1")
	if _, err := postgres.ReadAuditHead(t.Context(), db.App(t), enginetest.Schema); err == nil || !strings.Contains(err.Error(), "engine audit verify") {
		t.Errorf("ReadAuditHead = %v, want an error that names the command", err)
	}
	if _, err := db.Owner(t).Exec(t.Context(), postgres.SetAuditCounter(enginetest.Schema, 3)); err != nil {
		t.Fatalf("what the owner is told to run: %v", err)
	}
	if found := verifyAudit(t, db, nil); len(found.Flaws) != 0 {
		t.Errorf("after that: the flaws %v, want none", found.Flaws)
	}
	db.Exec(t, `UPDATE bothy.audit_seq SET seq = 4`)
	db.Exec(t, appendOneDeed, "after a hole")
	want := []postgres.AuditFlaw{{Code: postgres.AuditRemoved, First: 4, Last: 4}}
	if diff := cmp.Diff(want, verifyAudit(t, db, nil).Flaws); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Rows from before there was a chain get their hashes with the migration.
func TestAuditChainOfEarlierRows(t *testing.T) {
	t.Parallel()
	db := chain(t, 5)
	// as the release before left it
	err := postgres.RunScript(t.Context(), db.AdminURL, `ALTER TABLE bothy.audit_events DROP COLUMN details_text, DROP COLUMN prev, DROP COLUMN hash;
DROP FUNCTION bothy.audit_hash(bytea, bigint, timestamptz, text, text, text, text, text);
ALTER TABLE bothy.event_stage DROP COLUMN traceparent;
ALTER TABLE bothy.event_log DROP COLUMN traceparent;
DROP FUNCTION bothy.traceparent(text);
ALTER TABLE bothy.instance DROP COLUMN pg_database_oid;
DELETE FROM bothy.schema_migration WHERE version >= 10`)
	if err != nil {
		t.Fatal(err)
	}
	report := migrate(t, postgres.MigrateOptions{AdminURL: db.AdminURL, Schema: enginetest.Schema, Owner: enginetest.OwnerRole, App: enginetest.AppRole})
	if diff := cmp.Diff([]string{"0010_audit_chain.sql", "0011_traceparent.sql", "0012_database_oid.sql"}, report.Migrations); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	db.Exec(t, appendOneDeed, "later")
	if found := verifyAudit(t, db, nil); found.Rows != 6 || len(found.Flaws) != 0 {
		t.Errorf("%d rows with the flaws %v, want 6 and none", found.Rows, found.Flaws)
	}
	if _, err := db.Owner(t).Exec(t.Context(), `DELETE FROM bothy.audit_events`); !hasCode(err, postgres.CodeAuditChange) {
		t.Errorf("a deletion after the migration: %v, want it refused", err)
	}
}

// How a database writes times and bytes changes nothing.
func TestAuditOnADatabaseWithAnotherDateStyle(t *testing.T) {
	t.Parallel()
	db := chain(t, 3)
	for _, setting := range []string{"datestyle = 'German'", "bytea_output = 'escape'", "intervalstyle = 'sql_standard'", "timezone = 'Asia/Kolkata'"} {
		db.Exec(t, "ALTER DATABASE "+db.Name+" SET "+setting)
	}
	if found := verifyAudit(t, db, nil); found.Rows != 3 || len(found.Flaws) != 0 {
		t.Errorf("%d rows with the flaws %v, want 3 and none", found.Rows, found.Flaws)
	}
	db.Exec(t, appendOneDeed, "later")
	if found := verifyAudit(t, db, nil); found.Rows != 4 || len(found.Flaws) != 0 {
		t.Errorf("%d rows with the flaws %v, want 4 and none", found.Rows, found.Flaws)
	}
}
