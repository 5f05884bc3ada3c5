// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// instanceSQL makes the one row of a new installation. The epoch is random and carries its time of birth;
// it is never counted up, so that two restores of one backup never get the same.
func instanceSQL(o MigrateOptions) (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an id for the installation: %w", err)
	}
	epoch, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an epoch for the installation: %w", err)
	}
	return fmt.Sprintf(`INSERT INTO %s.instance (id, environment, sync_epoch) VALUES ('%s', %s, '%s') ON CONFLICT DO NOTHING`,
		quote(o.Schema), id, literal(o.Environment), epoch), nil
}

// identitySQL stores which server this is, when that is not known yet.
func identitySQL(schema string) string {
	return `UPDATE ` + quote(schema) + `.instance SET pg_system_identifier = ` + sqlSystem + `, pg_timeline_id = ` + sqlTimeline + `, pg_database_oid = ` + sqlDatabase + `
	WHERE pg_system_identifier IS NULL OR pg_timeline_id IS NULL`
}

// databaseSQL adds which database of it, where an older release stored the server alone and this is that server.
func databaseSQL(schema string) string {
	return `UPDATE ` + quote(schema) + `.instance SET pg_database_oid = ` + sqlDatabase + `
	WHERE pg_database_oid IS NULL AND pg_system_identifier = ` + sqlSystem + ` AND pg_timeline_id = ` + sqlAnyTimeline
}

// unknownIdentitySQL says that the server whose history the cursors follow is not known any more. It is none: what is
// there has to be finalized.
func unknownIdentitySQL(schema string) string {
	return `UPDATE ` + quote(schema) + `.instance SET pg_system_identifier = ` + lostIdentity + `, pg_timeline_id = ` + lostIdentity
}

// lostIdentity is the identifier and the timeline of no server.
const lostIdentity = "-1"

// notifySQL turns notifications on or off, and writes nothing when they are as they should be.
func notifySQL(schema string, on bool) string {
	value := strconv.FormatBool(on)
	return `UPDATE ` + quote(schema) + `.event_seq SET notify = ` + value + ` WHERE notify <> ` + value
}

// retentionSQL sets how long events are kept at least, and writes nothing when that is known.
func retentionSQL(schema string, keep time.Duration) string {
	value := "interval '" + strconv.FormatFloat(keep.Seconds(), 'f', -1, 64) + " seconds'"
	return `UPDATE ` + quote(schema) + `.event_seq SET retention = ` + value + ` WHERE retention <> ` + value
}

// makeInstance gives a new installation its identity, and fills what could not be read before.
func (m *migrator) makeInstance(ctx context.Context) error {
	insert, err := instanceSQL(m.o)
	if err != nil {
		return err
	}
	table := quote(m.o.Schema) + ".instance"
	err = m.asOwner(ctx, "write the identity of the installation", func(tx pgx.Tx) error {
		var exists, used bool
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+table+`), EXISTS (SELECT FROM `+quote(m.o.Schema)+`.event_consumer_cursors)`).Scan(&exists, &used)
		if err != nil || exists {
			return err
		}
		if used {
			m.report.Notes = append(m.report.Notes, "the table instance was empty although consumers have cursors, so nobody knows whose history they follow: no engine does any work before `engine restore finalize`")
		}
		m.report.Instance = true
		if _, err = tx.Exec(ctx, insert); err == nil && used {
			_, err = tx.Exec(ctx, unknownIdentitySQL(m.o.Schema))
		}
		return err
	})
	if err != nil {
		return err
	}
	state, err := readInstallation(ctx, m.conn, m.o.Schema)
	if err != nil {
		return err
	}
	if err := m.setEnvironment(ctx, state.Environment); err != nil {
		return err
	}
	if !state.Readable {
		return nil // the grants say what is missing
	}
	if state.Known {
		_, err := m.conn.Exec(ctx, databaseSQL(m.o.Schema))
		return failed("store the identity of the database", err)
	}
	if _, err := m.conn.Exec(ctx, identitySQL(m.o.Schema)); err != nil {
		return failed("store the identity of the server", err)
	}
	m.report.Instance = true
	return nil
}

// setEnvironment gives the installation the environment of the configuration when it has none. Another one says that this
// may be a copy that began to follow the wrong file: it is changed on purpose only, and that is recorded.
func (m *migrator) setEnvironment(ctx context.Context, has string) error {
	want := m.o.Environment
	if want == "" || has == want {
		return nil
	}
	if has != "" && !m.o.NewEnvironment {
		m.report.Notes = append(m.report.Notes, fmt.Sprintf("the database says environment %q, the configuration %q: nothing was changed, and no engine with this configuration does any work. "+
			"Connect to the right database; or, when this one is a copy, run `engine restore finalize --force`; or, when it is only to be called %q, run `engine migrate up --new-environment`", has, want, want))
		return nil
	}
	return m.asOwner(ctx, "write the environment of the installation", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, environmentSQL(m.o.Schema, has, want))
		if err != nil || tag.RowsAffected() == 0 { // somebody else was faster: the next run sees what it says now
			return err
		}
		m.report.Environment = want
		m.logf("the installation is called %q", want)
		if has == "" {
			return nil
		}
		var id string
		if err := tx.QueryRow(ctx, `SELECT id::text FROM `+quote(m.o.Schema)+`.instance`).Scan(&id); err != nil {
			return err
		}
		_, err = appendAudit(ctx, tx, m.o.Schema, EnvironmentChanged, id, DeedDetails{From: has, To: want})
		return err
	})
}

// environmentSQL changes the environment from what it was when it was looked at.
func environmentSQL(schema, has, want string) string {
	return `UPDATE ` + quote(schema) + `.instance SET environment = ` + literal(want) + ` WHERE environment = ` + literal(has)
}

func (m *migrator) setNotify(ctx context.Context) error {
	if m.o.Notify == nil {
		return nil
	}
	on := *m.o.Notify
	return m.asOwner(ctx, "switch notifications", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, notifySQL(m.o.Schema, on))
		if err == nil && tag.RowsAffected() > 0 {
			m.report.NotifyTurned = onOff(on)
			m.logf("notifications turned %s", m.report.NotifyTurned)
		}
		return err
	})
}

func (m *migrator) setRetention(ctx context.Context) error {
	if m.o.Retention == 0 {
		return nil
	}
	return m.asOwner(ctx, "set how long events are kept", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, retentionSQL(m.o.Schema, m.o.Retention))
		if err == nil && tag.RowsAffected() > 0 {
			m.report.RetentionSet = m.o.Retention
			m.logf("events are kept for at least %v", m.o.Retention)
		}
		return err
	})
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// readInstallation compares the stored identity with the server's in the database: only there are both read
// by one snapshot.
func readInstallation(ctx context.Context, conn Querier, schema string) (Installation, error) {
	i := Installation{Same: true}
	if err := conn.QueryRow(ctx, sqlMayReadIdentity).Scan(&i.Readable); err != nil {
		return i, failed("ask for the right to read the identity of the server", err)
	}
	same := `true`
	if i.Readable {
		same = `coalesce(pg_system_identifier = ` + sqlSystem + `, true) AND coalesce(pg_timeline_id = ` + sqlAnyTimeline + `, true) AND coalesce(pg_database_oid = ` + sqlDatabase + `, true)`
	}
	err := conn.QueryRow(ctx, `SELECT environment, pg_system_identifier IS NOT NULL AND pg_timeline_id IS NOT NULL, `+same+` FROM `+quote(schema)+`.instance`).
		Scan(&i.Environment, &i.Known, &i.Same)
	if errors.Is(err, pgx.ErrNoRows) {
		i.Gone = true
		return i, nil
	}
	i.Exists = err == nil
	return i, failed("read the identity of the installation", err)
}
