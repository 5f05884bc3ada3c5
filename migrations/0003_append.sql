-- SPDX-License-Identifier: Apache-2.0
-- How events get in.

-- Says what is wrong with an event type, or null. A blank or a control character in a type is a slip that
-- no glob of a consumer would ever match.
CREATE FUNCTION {{schema}}.event_type_problem(type text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $bothy$
    SELECT CASE
        WHEN $1 IS NULL THEN 'is missing: give the event a type such as order.created'
        WHEN $1 = '' THEN 'is empty: give the event a type such as order.created'
        WHEN length($1) > 256 THEN 'has ' || length($1) || ' characters: at most 256 are allowed'
        WHEN $1 ~ '[[:space:][:cntrl:]\u0080-\u00a0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff]'
            THEN 'is ' || to_json($1) || ': blanks and control characters are not allowed'
    END
$bothy$;

-- Refuses an append inside a round: the consumer would read its own output, and would hold the counter row
-- while it works.
CREATE FUNCTION {{schema}}.refuse_in_round() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $bothy$
BEGIN
    RAISE EXCEPTION 'consumer % appended an event inside its round', to_json(current_setting('bothy.in_round'))
        USING ERRCODE = 'BT001', HINT = 'Insert a job in the round and append the event when that job is worked.';
END
$bothy$;

-- Appends one event to the caller's transaction and answers its id. The event gets its number when the
-- transaction commits, so it need not be appended last. resource and resource_id may be null (stored as
-- ''), audience (an empty list) and payload ({}) too. At REPEATABLE READ and SERIALIZABLE the commit can
-- fail with 40001: retry the whole transaction.
CREATE FUNCTION {{schema}}.append_event(
    type        text,
    resource    text,
    resource_id text,
    audience    text[],
    payload     jsonb,
    event_time  timestamptz DEFAULT NULL,
    id          uuid DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $bothy$
DECLARE
    event_id constant uuid := coalesce(append_event.id, gen_random_uuid());
    problem  text;
BEGIN
    IF current_setting('bothy.in_round', true) <> '' THEN
        PERFORM {{schema}}.refuse_in_round();
    END IF;
    -- Most types are plain; the call that finds the words for one that is not costs as much as the rest.
    IF (length(append_event.type) BETWEEN 1 AND 256 AND append_event.type !~ '[^!-~]') IS NOT TRUE
       AND {{schema}}.event_type_problem(append_event.type) IS NOT NULL THEN
        problem := 'type ' || {{schema}}.event_type_problem(append_event.type);
    ELSIF array_ndims(append_event.audience) > 1 THEN
        problem := 'audience has more than one dimension: give a plain list of names';
    ELSIF array_position(append_event.audience, NULL) IS NOT NULL THEN
        problem := 'audience holds a null: every element names one recipient';
    ELSIF array_position(append_event.audience, '') IS NOT NULL THEN
        problem := 'audience holds an empty text: every element names one recipient';
    ELSIF NOT isfinite(append_event.event_time) THEN
        problem := 'event_time is ' || append_event.event_time || ': give a point in time, or null';
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'append_event: %', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO {{schema}}.event_stage (id, type, resource, resource_id, audience, payload, event_time, leads)
    VALUES (event_id, append_event.type, coalesce(append_event.resource, ''), coalesce(append_event.resource_id, ''),
            coalesce(append_event.audience, '{}'), coalesce(append_event.payload, '{}'), append_event.event_time, true);
    RETURN event_id;
END
$bothy$;

-- Says what is wrong with one element of append_events, or null.
CREATE FUNCTION {{schema}}.event_problem(e jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $bothy$
DECLARE
    known   constant text[] := '{type,resource,resource_id,audience,payload,event_time,id}';
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
CREATE FUNCTION {{schema}}.append_events(events jsonb) RETURNS uuid[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $bothy$
DECLARE
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
        INSERT INTO {{schema}}.event_stage (id, type, resource, resource_id, audience, payload, event_time, leads)
        SELECT coalesce((x.e ->> 'id')::uuid, gen_random_uuid()),
               x.e ->> 'type',
               coalesce(x.e ->> 'resource', ''),
               coalesce(x.e ->> 'resource_id', ''),
               CASE WHEN jsonb_typeof(x.e -> 'audience') = 'array'
                    THEN ARRAY (SELECT a FROM jsonb_array_elements_text(x.e -> 'audience') WITH ORDINALITY y(a, n) ORDER BY n)
                    ELSE '{}' END,
               coalesce(nullif(x.e -> 'payload', 'null'), '{}'),
               (x.e ->> 'event_time')::timestamptz,
               x.i = 1
        FROM jsonb_array_elements(events) WITH ORDINALITY x(e, i)
        ORDER BY x.i
        RETURNING event_stage.ord, event_stage.id
    )
    SELECT coalesce(array_agg(s.id ORDER BY s.ord), '{}') INTO ids FROM staged s;
    RETURN ids;
END
$bothy$;

REVOKE ALL ON FUNCTION {{schema}}.event_type_problem(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.refuse_in_round() FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.event_problem(jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.append_event(text, text, text, text[], jsonb, timestamptz, uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.append_events(jsonb) FROM PUBLIC;

INSERT INTO {{schema}}.schema_migration (version, name, oldest_binary) VALUES (3, 'append', 1);
