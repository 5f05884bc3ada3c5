// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/postgres"
)

// MigrateOptions is what a configuration says about its database.
func MigrateOptions(cfg *config.Config) postgres.MigrateOptions {
	o := postgres.MigrateOptions{
		AdminURL:        cfg.Database.Admin().Reveal(),
		Schema:          cfg.Database.Schema,
		Owner:           cfg.Database.Roles.Owner,
		App:             cfg.Database.Roles.App,
		Producers:       cfg.Database.Roles.Producers,
		ConsumerNames:   cfg.Names(),
		PartitionSize:   cfg.Sync.EventLogPartitionSize,
		PartitionsAhead: cfg.Sync.PartitionsAhead,
		Retention:       cfg.Sync.EventRetention,
		Environment:     cfg.Database.Environment,
		Unguarded:       !cfg.Database.Guarded(),
		JobsSchema:      cfg.Jobs.Schema,
		JobsMigrate:     cfg.Jobs.Migrate,

		StatementTimeout: cfg.Database.StatementTimeout,
		LockTimeout:      cfg.Database.LockTimeout,
	}
	// An absent key leaves what somebody has set in the database.
	if notify := cfg.Sync.Notifies(); cfg.Written("sync.notify") {
		o.Notify = &notify
	}
	return o
}
