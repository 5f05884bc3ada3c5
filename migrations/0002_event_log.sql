-- SPDX-License-Identifier: Apache-2.0
-- The log, its counter, and the place where events wait for their number.

-- The counter: one row, and it is the head. Every appending transaction updates it, so most of each page
-- stays free for new versions of the row, and vacuum looks often: an old snapshot anywhere in the database
-- keeps all versions alive, and the row gets slower to find with each one.
CREATE TABLE {{schema}}.event_seq (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    seq         bigint NOT NULL DEFAULT 0 CHECK (seq >= 0),
    -- the first number without a partition; kept beside the counter so that a producer reads both at once
    upper_bound bigint NOT NULL DEFAULT 1,
    -- whether an appending transaction sends NOTIFY event_log
    notify      boolean NOT NULL DEFAULT true
) WITH (
    fillfactor = 10,
    autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false
);

INSERT INTO {{schema}}.event_seq DEFAULT VALUES;

-- No default partition: it would catch rows whose partition could then never be made.
CREATE TABLE {{schema}}.event_log (
    seq         bigint PRIMARY KEY,
    id          uuid NOT NULL,
    type        text NOT NULL,
    resource    text NOT NULL DEFAULT '',
    resource_id text NOT NULL DEFAULT '',
    audience    text[] NOT NULL DEFAULT '{}',
    payload     jsonb NOT NULL DEFAULT '{}',
    -- the server's clock when the event was numbered
    occurred_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- the producer's clock, when it gave one
    event_time  timestamptz
) PARTITION BY RANGE (seq);

-- Events between append and commit. A row lives only inside the transaction that made it: nobody else
-- ever sees one, so nothing is lost when a crash empties an unlogged table. The key starts with the
-- transaction, so that a transaction finds its own rows in one step, whatever dead rows lie around.
CREATE UNLOGGED TABLE {{schema}}.event_stage (
    xid         xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- rises within a session, and a transaction lives in one session: this is the order of appending
    ord         bigint GENERATED ALWAYS AS IDENTITY (CACHE 64),
    id          uuid NOT NULL,
    type        text NOT NULL,
    resource    text NOT NULL,
    resource_id text NOT NULL,
    audience    text[] NOT NULL,
    payload     jsonb NOT NULL,
    event_time  timestamptz,
    -- the first row of an append: the only one that queues the trigger
    leads       boolean NOT NULL,
    PRIMARY KEY (xid, ord)
) WITH (
    autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 1000000, vacuum_truncate = false
);

-- Numbers what the transaction appended, as late as possible: the counter row is locked from here to the
-- end of the commit, and not while the caller works. The first firing takes all events of the transaction
-- along; a later one finds its row gone. A number can never be seen before a smaller one, since the next
-- transaction waits here until this one is over, and none is lost, since a rollback gives it back.
CREATE FUNCTION {{schema}}.number_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
-- A plan made while event_stage was nearly empty must not scan it once it is full of dead rows.
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $bothy$
DECLARE
    own      constant xid8 := pg_current_xact_id();
    patience constant text := current_setting('lock_timeout');
    many     bigint;
    last     bigint;
    bound    bigint;
    wake     boolean;
BEGIN
    -- Rows below NEW.ord are gone already. Not looking at them, nor at anything when this row is gone too,
    -- keeps many appends linear.
    SELECT (SELECT count(*) FROM {{schema}}.event_stage m WHERE m.xid = own AND m.ord >= NEW.ord) INTO many
    FROM {{schema}}.event_stage s WHERE s.xid = own AND s.ord = NEW.ord;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;

    -- Without a limit a stuck producer would freeze all others without a trace.
    IF patience = '0' THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        UPDATE {{schema}}.event_seq c SET seq = c.seq + many WHERE c.one
        RETURNING c.seq, c.upper_bound, c.notify INTO last, bound, wake;
    ELSE
        -- The block costs a subtransaction, so only those pay for the hint who can need it.
        BEGIN
            UPDATE {{schema}}.event_seq c SET seq = c.seq + many WHERE c.one
            RETURNING c.seq, c.upper_bound, c.notify INTO last, bound, wake;
        EXCEPTION WHEN serialization_failure THEN
            RAISE EXCEPTION 'another transaction appended events after this one had taken its snapshot'
                USING ERRCODE = 'serialization_failure',
                      HINT = 'Retry the whole transaction, or append in a READ COMMITTED transaction, which waits instead.';
        END;
    END IF;
    IF patience = '0' THEN
        PERFORM set_config('lock_timeout', '0', true);
    END IF;

    IF last IS NULL THEN
        RAISE EXCEPTION 'the counter row of the event log is missing'
            USING ERRCODE = 'BT004', HINT = 'The table event_seq must hold exactly one row: restore it with seq = the highest number in event_log.';
    END IF;
    IF last >= bound THEN
        RAISE EXCEPTION 'the event log has no partition for number %', greatest(bound, last - many + 1)
            USING ERRCODE = 'BT003', HINT = 'Run "engine migrate up": it makes partitions ahead of the head. No event was stored and no number used.';
    END IF;

    IF many = 1 THEN
        INSERT INTO {{schema}}.event_log (seq, id, type, resource, resource_id, audience, payload, occurred_at, event_time)
        VALUES (last, NEW.id, NEW.type, NEW.resource, NEW.resource_id, NEW.audience, NEW.payload, clock_timestamp(), NEW.event_time);
        DELETE FROM {{schema}}.event_stage s WHERE s.xid = own AND s.ord = NEW.ord;
    ELSE
        WITH moved AS (
            DELETE FROM {{schema}}.event_stage s WHERE s.xid = own AND s.ord >= NEW.ord
            RETURNING s.ord, s.id, s.type, s.resource, s.resource_id, s.audience, s.payload, s.event_time
        )
        INSERT INTO {{schema}}.event_log (seq, id, type, resource, resource_id, audience, payload, occurred_at, event_time)
        SELECT last - many + row_number() OVER (ORDER BY m.ord),
               m.id, m.type, m.resource, m.resource_id, m.audience, m.payload, clock_timestamp(), m.event_time
        FROM moved m;
    END IF;

    -- The server drops the copies that a transaction sends twice.
    IF wake THEN
        PERFORM pg_notify('event_log', '');
    END IF;
    RETURN NULL;
END
$bothy$;

REVOKE ALL ON FUNCTION {{schema}}.number_events() FROM PUBLIC;

CREATE CONSTRAINT TRIGGER number_events AFTER INSERT ON {{schema}}.event_stage
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.leads)
    EXECUTE FUNCTION {{schema}}.number_events();

-- Also in a session that replays a replication stream: a staged event without a number would be lost.
ALTER TABLE {{schema}}.event_stage ENABLE ALWAYS TRIGGER number_events;

INSERT INTO {{schema}}.schema_migration (version, name, oldest_binary) VALUES (2, 'event_log', 1);
