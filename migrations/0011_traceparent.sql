-- SPDX-License-Identifier: Apache-2.0
-- The trace that an event belongs to: a producer gives it, and the jobs of the event carry it on.

-- Answers what W3C Trace Context calls a traceparent, and null for anything else: one that is malformed is to be
-- ignored, and must not cost anybody a transaction. https://www.w3.org/TR/trace-context/
CREATE FUNCTION {{schema}}.traceparent(given text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $bothy$
    SELECT CASE WHEN length($1) = 55 AND $1 ~ '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$' THEN $1 END
$bothy$;

-- The stage comes first: a producer takes its lock before that of the log, and so this one waits for no producer
-- that waits for it. The default is how append_event finds what the transaction set with
-- SET LOCAL bothy.traceparent; where nothing is set it costs no call.
ALTER TABLE {{schema}}.event_stage ADD COLUMN traceparent text
    DEFAULT CASE WHEN current_setting('bothy.traceparent', true) <> ''
        THEN {{schema}}.traceparent(current_setting('bothy.traceparent', true)) END;

ALTER TABLE {{schema}}.event_log ADD COLUMN traceparent text;

-- Says what is wrong with one element of append_events, or null.
CREATE OR REPLACE FUNCTION {{schema}}.event_problem(e jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $bothy$
DECLARE
    known   constant text[] := '{type,resource,resource_id,audience,payload,event_time,id,traceparent}';
    key     text;
    kind    text;
    problem text;
BEGIN
    IF jsonb_typeof(e) <> 'object' THEN
        RETURN ' is ' || jsonb_typeof(e) || ': every element is an object such as {"type": "order.created"}';
    END IF;
    FOR key, kind IN SELECT k, jsonb_typeof(e -> k) FROM jsonb_object_keys(e) k LOOP
        IF key <> ALL (known) THEN
            RETURN ' has the unknown key ' || to_json(key) || ': the keys are ' || array_to_string(known, ', ');
        ELSIF kind <> 'null' AND key = 'audience' AND kind <> 'array' THEN
            RETURN '.audience is ' || kind || ': give an array of texts';
        ELSIF kind NOT IN ('null', 'string') AND key NOT IN ('audience', 'payload') THEN
            RETURN '.' || key || ' is ' || kind || ': give a string';
        END IF;
    END LOOP;
    IF (length(e ->> 'type') BETWEEN 1 AND 256 AND e ->> 'type' !~ '[^!-~]') IS NOT TRUE
       AND {{schema}}.event_type_problem(e ->> 'type') IS NOT NULL THEN
        RETURN '.type ' || {{schema}}.event_type_problem(e ->> 'type');
    END IF;
    IF jsonb_typeof(e -> 'audience') = 'array' THEN
        FOR key, kind IN SELECT i - 1, jsonb_typeof(a) || CASE WHEN a = '""' THEN ' (empty)' ELSE '' END
                FROM jsonb_array_elements(e -> 'audience') WITH ORDINALITY x(a, i)
                WHERE jsonb_typeof(a) <> 'string' OR a = '""' ORDER BY i LIMIT 1 LOOP
            RETURN '.audience[' || key || '] is ' || kind || ': every element is a text that names one recipient';
        END LOOP;
    END IF;
    IF e ->> 'id' !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN
        RETURN '.id is ' || (e -> 'id')::text || ': give a UUID such as 0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d';
    END IF;
    IF e ->> 'event_time' IS NOT NULL THEN
        -- Only the full form: a time without a zone would mean another moment in each session.
        problem := '.event_time is ' || (e -> 'event_time')::text || ': give a time with its zone such as 2026-01-31T09:30:00Z';
        IF e ->> 'event_time' !~ '^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)$' THEN
            RETURN problem;
        END IF;
        BEGIN
            PERFORM (e ->> 'event_time')::timestamptz;
        EXCEPTION WHEN datetime_field_overflow OR invalid_datetime_format OR invalid_time_zone_displacement_value THEN
            RETURN problem;
        END;
    END IF;
    RETURN NULL;
END
$bothy$;

-- Appends all events of a JSON array, or none, and answers their ids in the same order. The keys of an
-- element are the arguments of append_event. An error names the element, counted from 0.
-- One more key is traceparent; an element without it has that of the transaction.
CREATE OR REPLACE FUNCTION {{schema}}.append_events(events jsonb) RETURNS uuid[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $bothy$
DECLARE
    -- of the transaction
    around  constant text := CASE WHEN current_setting('bothy.traceparent', true) <> ''
        THEN {{schema}}.traceparent(current_setting('bothy.traceparent', true)) END;
    problem text;
    ids     uuid[];
BEGIN
    IF current_setting('bothy.in_round', true) <> '' THEN
        PERFORM {{schema}}.refuse_in_round();
    END IF;
    IF events IS NULL OR jsonb_typeof(events) <> 'array' THEN
        RAISE EXCEPTION 'append_events: events is %: give a JSON array of objects', coalesce(jsonb_typeof(events), 'null')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT 'events[' || i - 1 || ']' || p INTO problem
    FROM (SELECT x.i, {{schema}}.event_problem(x.e) AS p FROM jsonb_array_elements(events) WITH ORDINALITY x(e, i)) checked
    WHERE p IS NOT NULL LIMIT 1;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'append_events: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    WITH staged AS (
        INSERT INTO {{schema}}.event_stage (id, type, resource, resource_id, audience, payload, event_time, leads, traceparent)
        SELECT coalesce((x.e ->> 'id')::uuid, gen_random_uuid()),
               x.e ->> 'type',
               coalesce(x.e ->> 'resource', ''),
               coalesce(x.e ->> 'resource_id', ''),
               CASE WHEN jsonb_typeof(x.e -> 'audience') = 'array'
                    THEN ARRAY (SELECT a FROM jsonb_array_elements_text(x.e -> 'audience') WITH ORDINALITY y(a, n) ORDER BY n)
                    ELSE '{}' END,
               coalesce(nullif(x.e -> 'payload', 'null'), '{}'),
               (x.e ->> 'event_time')::timestamptz,
               x.i = 1,
               CASE WHEN x.e ->> 'traceparent' IS NULL THEN around ELSE {{schema}}.traceparent(x.e ->> 'traceparent') END
        FROM jsonb_array_elements(events) WITH ORDINALITY x(e, i)
        ORDER BY x.i
        RETURNING event_stage.ord, event_stage.id
    )
    SELECT coalesce(array_agg(s.id ORDER BY s.ord), '{}') INTO ids FROM staged s;
    RETURN ids;
END
$bothy$;

-- Moves what transaction own staged, from ord on, into the log; the first gets the number after before.
CREATE OR REPLACE FUNCTION {{schema}}.move_staged(own xid8, ord bigint, before bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $bothy$
BEGIN
    WITH moved AS (
        DELETE FROM {{schema}}.event_stage s WHERE s.xid = own AND s.ord >= move_staged.ord
        RETURNING s.ord, s.id, s.type, s.resource, s.resource_id, s.audience, s.payload, s.event_time, s.traceparent
    )
    INSERT INTO {{schema}}.event_log (seq, id, type, resource, resource_id, audience, payload, occurred_at, event_time, traceparent)
    SELECT before + row_number() OVER (ORDER BY m.ord),
           m.id, m.type, m.resource, m.resource_id, m.audience, m.payload, clock_timestamp(), m.event_time, m.traceparent
    FROM moved m;
END
$bothy$;

-- Numbers what the transaction appended, as late as possible: the counter row is locked from here to the
-- end of the commit, and not while the caller works. The first firing takes all events of the transaction
-- along; a later one finds its row gone. A number can never be seen before a smaller one, since the next
-- transaction waits here until this one is over, and none is lost, since a rollback gives it back.
CREATE OR REPLACE FUNCTION {{schema}}.number_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
-- A plan made while event_stage was nearly empty must not scan it once it is full of dead rows.
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $bothy$
DECLARE
    own      constant xid8 := pg_current_xact_id();
    patience constant text := current_setting('lock_timeout');
    many     bigint;
    last     bigint;
    bound    bigint;
    known    bigint;
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
        RETURNING c.seq, c.upper_bound, c.settled, c.notify INTO last, bound, known, wake;
    ELSE
        -- The block costs a subtransaction, so only those pay for the hint who can need it.
        BEGIN
            UPDATE {{schema}}.event_seq c SET seq = c.seq + many WHERE c.one
            RETURNING c.seq, c.upper_bound, c.settled, c.notify INTO last, bound, known, wake;
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
        PERFORM {{schema}}.make_room(last - many + 1, last);
    END IF;

    IF last >= known THEN
        PERFORM {{schema}}.move_unsettled(own, NEW.ord, last - many);
    ELSIF many = 1 THEN
        INSERT INTO {{schema}}.event_log (seq, id, type, resource, resource_id, audience, payload, occurred_at, event_time, traceparent)
        VALUES (last, NEW.id, NEW.type, NEW.resource, NEW.resource_id, NEW.audience, NEW.payload, clock_timestamp(),
                NEW.event_time, NEW.traceparent);
        DELETE FROM {{schema}}.event_stage s WHERE s.xid = own AND s.ord = NEW.ord;
    ELSE
        PERFORM {{schema}}.move_staged(own, NEW.ord, last - many);
    END IF;

    -- The server drops the copies that a transaction sends twice.
    IF wake THEN
        PERFORM pg_notify('event_log', '');
    END IF;
    RETURN NULL;
END
$bothy$;

REVOKE ALL ON FUNCTION {{schema}}.traceparent(text) FROM PUBLIC;

INSERT INTO {{schema}}.schema_migration (version, name, oldest_binary) VALUES (11, 'traceparent', 1);
