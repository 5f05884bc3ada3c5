-- SPDX-License-Identifier: Apache-2.0
-- Events that a consumer could not decide and has set aside, and the deeds that follow from that.

-- The cursor has passed these events without their jobs. A row is made in the transaction that moves the cursor,
-- and goes in the one that inserts the jobs after all, or in the one that gives the event up.
CREATE TABLE {{schema}}.event_quarantine (
    consumer   text NOT NULL CHECK (consumer <> ''),
    seq        bigint NOT NULL CHECK (seq > 0),
    -- a SQLSTATE, handler, rule or panic
    error_type text NOT NULL CHECK (error_type <> ''),
    -- in the engine's own words: nothing of the event, nor what a handler said of it
    message    text NOT NULL CHECK (char_length(message) <= 500),
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- how many rounds in a row it failed
    attempts   integer NOT NULL CHECK (attempts > 0),
    PRIMARY KEY (consumer, seq)
);

ALTER TABLE {{schema}}.audit_events
    DROP CONSTRAINT audit_events_action_check,
    ADD CONSTRAINT audit_events_action_check CHECK (action IN (
        'consumer.created', 'consumer.renamed', 'consumer.retired', 'consumer.lost', 'consumer.skipped',
        'quarantine.retried', 'quarantine.dropped'));

-- Locks one row, and answers whether it is there: of two sessions that want to settle the same event the second
-- waits, and then finds nothing. A lock needs the right to change, which the application does not have.
CREATE FUNCTION {{schema}}.lock_quarantined(consumer text, seq bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $bothy$
BEGIN
    PERFORM FROM {{schema}}.event_quarantine q
    WHERE q.consumer = lock_quarantined.consumer AND q.seq = lock_quarantined.seq FOR UPDATE;
    RETURN FOUND;
END
$bothy$;

-- Removes one row and appends to the audit why, which is the only way out for the application. It answers the
-- number of the deed. Call it last: other deeds wait until this transaction ends.
CREATE FUNCTION {{schema}}.settle_quarantined(consumer text, seq bigint, action text, details jsonb) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $bothy$
DECLARE
    kept {{schema}}.event_quarantine;
BEGIN
    IF action IS NULL OR action NOT IN ('quarantine.retried', 'quarantine.dropped') THEN
        RAISE EXCEPTION 'settle_quarantined: action is %: write quarantine.retried or quarantine.dropped', to_json(action)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    DELETE FROM {{schema}}.event_quarantine q
    WHERE q.consumer = settle_quarantined.consumer AND q.seq = settle_quarantined.seq RETURNING * INTO kept;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'event % of consumer % is not in quarantine', coalesce(seq::text, 'null'), to_json(consumer)
            USING ERRCODE = 'BT006', HINT = 'It was retried or dropped already, or never set aside. Nothing was changed.';
    END IF;
    RETURN {{schema}}.append_audit(action, consumer,
        coalesce(details, '{}') || jsonb_build_object('seq', kept.seq, 'error_type', kept.error_type));
END
$bothy$;

REVOKE ALL ON FUNCTION {{schema}}.lock_quarantined(text, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.settle_quarantined(text, bigint, text, jsonb) FROM PUBLIC;

INSERT INTO {{schema}}.schema_migration (version, name, oldest_binary) VALUES (8, 'quarantine', 1);
