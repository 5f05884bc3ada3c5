// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/problem"
	core "example.com/bothy/engine/round"
)

// live is everything that the role of the app does: it checks the schema, makes partitions and cursors, appends,
// runs rounds that insert by either way and record a loss, works out the state, explains an event, drops old partitions, verifies the audit, and compares.
func live(ctx context.Context, t *testing.T, db *enginetest.DB) error {
	t.Helper()
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("person-%d", i)
	}
	cfg := configure(t, db,
		entry{name: "few", recipients: "{list: [alex]}"},
		entry{name: "many", recipients: "{list: [" + strings.Join(many, ", ") + "]}"},
		entry{name: "query", recipients: `{query: "SELECT b.seq, b.type AS recipient FROM batch b"}`},
		entry{name: "handler", recipients: "{handler: own}"})
	e, err := engine.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	register(t, e, "own", func(ctx context.Context, tx *engine.HandlerTx, ev engine.Event) ([]string, error) {
		return []string{"alex"}, tx.InsertJob(ctx, ownArgs{ev.Seq}, core.Job{})
	})
	if err := e.Prepare(ctx); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, db.AppURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range []string{
		`SELECT bothy.append_event('order.created', 'order', '1', NULL, NULL)`, `SELECT bothy.append_events('[{"type": "order.created"}]')`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	db.Exec(t, `DELETE FROM bothy.event_log WHERE seq = 1`) // as retention does
	for _, name := range cfg.Names() {
		o, err := e.Round(ctx, name)
		if err == nil && o.End.Name != "lost" {
			err = fmt.Errorf("round of %s ended %s: %w", name, o.End.Name, o.Err)
		}
		if err != nil {
			return err
		}
	}
	if _, err := e.States(ctx); err != nil {
		return err
	}
	if err := e.DropExpired(ctx); err != nil {
		return err
	}
	if _, err := e.Why(ctx, 1, engine.WhyOptions{}); err != nil {
		return err
	}
	if _, err := engine.VerifyAudit(ctx, cfg, nil); err != nil {
		return err
	}
	if _, err := e.Compare(ctx, nil); err != nil {
		return err
	}
	return setAsideAndSettle(ctx, t, db)
}

// setAsideAndSettle sets an event aside, and takes it out of the quarantine again.
func setAsideAndSettle(ctx context.Context, t *testing.T, db *enginetest.DB) error {
	t.Helper()
	e, err := engine.Open(ctx, configureWith(t, db.AppURL, quickly, entry{name: "handler", recipients: "{handler: own}", extra: ", on_failure: quarantine, after: 1"}))
	if err != nil {
		return err
	}
	defer e.Close()
	failures := 0
	register(t, e, "own", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
		if failures++; failures == 1 {
			return nil, errors.New("no luck")
		}
		return []string{"alex"}, nil
	})
	conn, err := pgx.Connect(ctx, db.AppURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, `SELECT bothy.append_event('order.created', 'order', '1', NULL, NULL)`); err != nil {
		return err
	}
	if o := e.Suspect(ctx, "handler", 3); o.End.Name != "quarantined" {
		return fmt.Errorf("a round with a suspect ended %s: %w", o.End.Name, o.Err)
	}
	_, err = e.RetryQuarantined(ctx, "handler", 3, "alex")
	return err
}

// The app has the rights that are granted to it and no other; with them it does all of its work. Without any one of
// them it does not, so none is asked for in vain, and the one that is missing is named.
func TestAppHasTheRightsThatItNeeds(t *testing.T) {
	t.Parallel()
	names := enginetest.WithConsumers("few", "many", "query", "handler")
	t.Run("all of them", func(t *testing.T) {
		t.Parallel()
		if err := live(t.Context(), t, enginetest.New(t, names)); err != nil {
			t.Error(err)
		}
	})
	granted := 0
	for _, grant := range grantsOfApp(t) {
		verbs, on, _ := strings.Cut(strings.TrimPrefix(grant, "GRANT "), " ON ")
		for verb := range strings.SplitSeq(verbs, ", ") {
			granted++
			t.Run(verb+" ON "+on, func(t *testing.T) {
				t.Parallel()
				db := enginetest.New(t, names)
				db.Exec(t, "REVOKE "+verb+" ON "+strings.Replace(on, " TO ", " FROM ", 1))
				if err := live(t.Context(), t, db); err == nil {
					t.Errorf("nothing that the app does needs this right: take it out of the grants")
				}
				problems := checkDatabase(t, configureWith(t, db.AppURL, "  roles: {owner: bothy_owner, app: bothy_app}", entry{name: "few"}))
				at := slices.IndexFunc(problems, func(p problem.Problem) bool { return p.Code == "missing-right" && strings.HasSuffix(p.Fix, grant) })
				if at < 0 {
					t.Errorf("CheckDatabase does not name %s:\n%v", grant, problems)
				}
			})
		}
	}
	if granted < 15 {
		t.Errorf("tried %d rights, want all of them", granted)
	}
}

// grantsOfApp are the statements that give the app its rights, as a plan for an empty database has them.
func grantsOfApp(t *testing.T) []string {
	t.Helper()
	db := enginetest.New(t, enginetest.Empty())
	status, err := postgres.MigrationStatus(t.Context(), postgres.MigrateOptions{
		AdminURL: db.AdminURL, Schema: enginetest.Schema, Owner: enginetest.OwnerRole, App: enginetest.AppRole,
		JobsSchema: enginetest.JobsSchema, JobsMigrate: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var grants []string
	for _, n := range status.Missing {
		if n.Role == enginetest.AppRole {
			grants = append(grants, n.Do)
		}
	}
	return grants
}
