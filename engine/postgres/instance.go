// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"fmt"
	"strconv"

	"github.com/google/uuid"
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
	return `UPDATE ` + quote(schema) + `.instance SET pg_system_identifier = ` + sqlSystem + `, pg_timeline_id = ` + sqlTimeline + `
	WHERE pg_system_identifier IS NULL OR pg_timeline_id IS NULL`
}

// notifySQL turns notifications on or off, and writes nothing when they are as they should be.
func notifySQL(o MigrateOptions) string {
	on := strconv.FormatBool(!o.NotifyOff)
	return `UPDATE ` + quote(o.Schema) + `.event_seq SET notify = ` + on + ` WHERE notify <> ` + on
}
