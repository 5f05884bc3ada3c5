-- SPDX-License-Identifier: Apache-2.0
-- The audit as a chain: each row carries the hash of the row before it, so that none can be changed, taken away or put
-- in between without a trace that engine audit verify finds.

-- Whoever writes a deed takes the counter first, and so does this.
LOCK TABLE {{schema}}.audit_seq IN EXCLUSIVE MODE;

ALTER TABLE {{schema}}.audit_events DROP CONSTRAINT audit_events_action_check, ADD CONSTRAINT audit_events_action_check
    CHECK (action IN ('consumer.created', 'consumer.renamed', 'consumer.retired', 'consumer.lost', 'consumer.skipped',
        'quarantine.retried', 'quarantine.dropped',
        'instance.restore_finalized', 'instance.relocated', 'instance.counter_repaired', 'instance.environment_changed'));

-- The details as the hash covers them: how a later server writes a jsonb may differ, and a text stays as it is.
ALTER TABLE {{schema}}.audit_events
    ADD COLUMN details_text text,
    -- the hash of the row before; of the first row 32 bytes of zero
    ADD COLUMN prev bytea CHECK (octet_length(prev) = 32),
    ADD COLUMN hash bytea CHECK (octet_length(hash) = 32);

-- The hash of a row: SHA-256 over the hash before it and every field behind its length in bytes, so that no two
-- rows have the same text. Nothing in it depends on a setting of a session, on the encoding of the database or on
-- the version of the server.
CREATE FUNCTION {{schema}}.audit_hash(prev bytea, seq bigint, at timestamptz, actor text, client text, action text, subject text, details text) RETURNS bytea
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $bothy$
    SELECT sha256(prev || convert_to('bothy.audit.1' || E'\n' || string_agg(octet_length(convert_to(f.field, 'UTF8')) || ':' || f.field || ',', '' ORDER BY f.place), 'UTF8'))
    FROM (VALUES (1, seq::text), (2, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')),
        (3, actor), (4, client), (5, action), (6, subject), (7, details)) f (place, field)
$bothy$;

-- What was written before there was a chain gets its hashes now: from here on it is fixed.
ALTER TABLE {{schema}}.audit_events DISABLE TRIGGER audit_only_grows;

DO $bothy$
DECLARE
    row    record;
    before bytea := decode(repeat('00', 32), 'hex');
BEGIN
    FOR row IN SELECT * FROM {{schema}}.audit_events ORDER BY seq LOOP
        UPDATE {{schema}}.audit_events a SET details_text = row.details::text, prev = before,
            hash = {{schema}}.audit_hash(before, row.seq, row.at, row.actor, row.client, row.action, row.subject, row.details::text)
        WHERE a.seq = row.seq RETURNING a.hash INTO before;
    END LOOP;
END
$bothy$;

ALTER TABLE {{schema}}.audit_events ENABLE ALWAYS TRIGGER audit_only_grows;

ALTER TABLE {{schema}}.audit_events
    ALTER COLUMN details_text SET NOT NULL,
    ALTER COLUMN prev SET NOT NULL,
    ALTER COLUMN hash SET NOT NULL,
    -- two rows never follow the same one, whatever becomes of the lock
    ADD CONSTRAINT audit_events_prev_key UNIQUE (prev);

-- Appends one row and answers its number. Call it last: other deeds wait until this transaction ends.
CREATE OR REPLACE FUNCTION {{schema}}.append_audit(action text, subject text, details jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
-- A transaction that somebody left open must not stop all others without a word.
SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $bothy$
DECLARE
    own    bigint;
    last   bigint;
    before bytea;
    stamp  timestamptz;
BEGIN
    UPDATE {{schema}}.audit_seq c SET seq = c.seq + 1 WHERE c.one RETURNING c.seq INTO own;
    IF own IS NULL THEN
        RAISE EXCEPTION 'the counter row of the audit is missing'
            USING ERRCODE = 'BT004', HINT = 'The table audit_seq must hold exactly one row: restore it with seq = the highest number in audit_events.';
    END IF;
    -- With the lock on the counter nobody else appends, and this statement sees what the last one committed. Where
    -- rows are missing the chain goes on from the last one that is there: a deed is never left unwritten for that.
    SELECT a.seq, a.hash INTO last, before FROM {{schema}}.audit_events a ORDER BY a.seq DESC LIMIT 1;
    IF last >= own THEN
        RAISE EXCEPTION 'the audit holds row %, and its counter stood at %', last, own - 1
            USING ERRCODE = 'BT004', HINT = 'A partial restore leaves them so: run "engine audit verify", then set seq in audit_seq to the highest number in audit_events.';
    END IF;
    stamp := clock_timestamp();
    INSERT INTO {{schema}}.audit_events (seq, at, actor, client, action, subject, details, details_text, prev, hash)
    SELECT own, stamp, r.actor, r.client, append_audit.action, append_audit.subject, append_audit.details, append_audit.details::text, r.before,
        {{schema}}.audit_hash(r.before, own, stamp, r.actor, r.client, append_audit.action, append_audit.subject, append_audit.details::text)
    FROM (SELECT session_user::text AS actor, current_setting('application_name') AS client,
        coalesce(before, decode(repeat('00', 32), 'hex')) AS before) r;
    RETURN own;
END
$bothy$;

REVOKE ALL ON FUNCTION {{schema}}.append_audit(text, text, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.audit_hash(bytea, bigint, timestamptz, text, text, text, text, text) FROM PUBLIC;

INSERT INTO {{schema}}.schema_migration (version, name, oldest_binary) VALUES (10, 'audit_chain', 1);
