-- SPDX-License-Identifier: Apache-2.0
-- What was done to the installation: one row for each deed, which nobody changes afterwards.

-- The number of the newest row. Who appends holds this row to the end of the transaction: rows are numbered
-- without a gap, in the order of their commits, and no two can follow the same one, the first included.
CREATE TABLE {{schema}}.audit_seq (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    seq bigint NOT NULL DEFAULT 0 CHECK (seq >= 0)
);

INSERT INTO {{schema}}.audit_seq DEFAULT VALUES;

CREATE TABLE {{schema}}.audit_events (
    seq     bigint PRIMARY KEY CHECK (seq > 0),
    -- the server's clock when the row was numbered
    at      timestamptz NOT NULL,
    -- the role that logged in, whichever role it acts as
    actor   text NOT NULL,
    -- what the program calls itself (application_name): its own claim
    client  text NOT NULL,
    action  text NOT NULL CONSTRAINT audit_events_action_check
            CHECK (action IN ('consumer.created', 'consumer.renamed', 'consumer.retired')),
    -- what it was done to; for consumer.* the name of the consumer before the deed
    subject text NOT NULL CHECK (subject <> ''),
    details jsonb NOT NULL CHECK (jsonb_typeof(details) = 'object')
);

-- Appends one row and answers its number. Call it last: other deeds wait until this transaction ends.
CREATE FUNCTION {{schema}}.append_audit(action text, subject text, details jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
-- A transaction that somebody left open must not stop all others without a word.
SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $bothy$
DECLARE
    own bigint;
BEGIN
    UPDATE {{schema}}.audit_seq c SET seq = c.seq + 1 WHERE c.one RETURNING c.seq INTO own;
    IF own IS NULL THEN
        RAISE EXCEPTION 'the counter row of the audit is missing'
            USING ERRCODE = 'BT004', HINT = 'The table audit_seq must hold exactly one row: restore it with seq = the highest number in audit_events.';
    END IF;
    INSERT INTO {{schema}}.audit_events (seq, at, actor, client, action, subject, details)
    VALUES (own, clock_timestamp(), session_user, current_setting('application_name'),
            append_audit.action, append_audit.subject, append_audit.details);
    RETURN own;
END
$bothy$;

CREATE FUNCTION {{schema}}.refuse_audit_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $bothy$
BEGIN
    RAISE EXCEPTION 'audit_events only grows: % is refused, whoever asks', TG_OP
        USING ERRCODE = 'BT005', HINT = 'A row records what was done. Leave it, and do what puts things right: that is recorded too.';
END
$bothy$;

CREATE TRIGGER audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON {{schema}}.audit_events
    FOR EACH STATEMENT EXECUTE FUNCTION {{schema}}.refuse_audit_change();

-- Also in a session that replays a replication stream.
ALTER TABLE {{schema}}.audit_events ENABLE ALWAYS TRIGGER audit_only_grows;

-- Where a consumer starts decides which events it never sees, so it is written down in the transaction that
-- makes the cursor, whichever program makes it: an engine of an older release, or a person. The trigger
-- fires after the whole statement: all cursors are made before the first row of the audit is waited for.
CREATE FUNCTION {{schema}}.audit_new_cursor() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $bothy$
BEGIN
    PERFORM {{schema}}.append_audit('consumer.created', NEW.name, jsonb_build_object('last_seq', NEW.last_seq));
    RETURN NULL;
END
$bothy$;

CREATE TRIGGER audit_new_cursor AFTER INSERT ON {{schema}}.event_consumer_cursors
    FOR EACH ROW EXECUTE FUNCTION {{schema}}.audit_new_cursor();

REVOKE ALL ON FUNCTION {{schema}}.append_audit(text, text, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.refuse_audit_change() FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.audit_new_cursor() FROM PUBLIC;

INSERT INTO {{schema}}.schema_migration (version, name, oldest_binary) VALUES (6, 'audit', 1);
