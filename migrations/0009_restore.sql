-- SPDX-License-Identifier: Apache-2.0
-- What a restore moves: the cursors of readers outside of the engine, and the deeds that tell of it.

-- Where each agent stands: the last number that it has acknowledged.
CREATE TABLE {{schema}}.agent_consumer_cursors (
    agent      text PRIMARY KEY CHECK (agent <> ''),
    acked_seq  bigint NOT NULL DEFAULT 0 CHECK (acked_seq >= 0),
    -- grows with each session of the agent: only the newest one may acknowledge
    session    bigint NOT NULL DEFAULT 0 CHECK (session >= 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
) WITH (
    fillfactor = 10,
    autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false
);

-- Who is sent events over HTTP, and up to which number everything was delivered.
CREATE TABLE {{schema}}.webhook_subscriptions (
    id                 uuid PRIMARY KEY,
    url                text NOT NULL CHECK (url <> ''),
    -- patterns on the event type; empty: all events
    types              text[] NOT NULL DEFAULT '{}',
    active             boolean NOT NULL DEFAULT true,
    last_delivered_seq bigint NOT NULL DEFAULT 0 CHECK (last_delivered_seq >= 0),
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now()
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false
);

ALTER TABLE {{schema}}.audit_events
    DROP CONSTRAINT audit_events_action_check,
    ADD CONSTRAINT audit_events_action_check CHECK (action IN (
        'consumer.created', 'consumer.renamed', 'consumer.retired', 'consumer.lost', 'consumer.skipped',
        'quarantine.retried', 'quarantine.dropped',
        'instance.restore_finalized', 'instance.relocated'));

INSERT INTO {{schema}}.schema_migration (version, name, oldest_binary) VALUES (9, 'restore', 1);
