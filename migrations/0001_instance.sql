-- SPDX-License-Identifier: Apache-2.0
-- Who this installation is.
CREATE TABLE {{schema}}.instance (
    id                   uuid PRIMARY KEY,
    environment          text NOT NULL DEFAULT '',
    -- changes only when a restore is finalized; stamped on every job
    sync_epoch           uuid NOT NULL,
    -- the cluster and the history that the cursors follow; null until they could be read
    pg_system_identifier bigint,
    pg_timeline_id       bigint
);

-- One row, whoever inserts.
CREATE UNIQUE INDEX instance_one_row ON {{schema}}.instance ((true));

INSERT INTO {{schema}}.schema_migration (version, name, oldest_binary) VALUES (1, 'instance', 1);
