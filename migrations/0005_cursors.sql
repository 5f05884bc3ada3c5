-- SPDX-License-Identifier: Apache-2.0
-- Where each consumer stands.

-- No row is made here: a consumer starts at the head when it first runs, and one that is declared in a
-- later release must not replay what the log held before.
CREATE TABLE {{schema}}.event_consumer_cursors (
    name       text PRIMARY KEY,
    last_seq   bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT now(),
    -- the names that consumers.yaml declares, and those that have a row; engine migrate up adds to it
    CONSTRAINT event_consumer_cursors_name_check CHECK (name = ANY (ARRAY[]::text[]))
) WITH (
    fillfactor = 10,
    autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false
);

-- Moves one cursor, and raises unless exactly one row moved: a statement that may travel together with
-- COMMIT must fail by itself when the round lost its ground.
CREATE FUNCTION {{schema}}.advance_cursor(consumer text, expected bigint, "next" bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $bothy$
DECLARE
    moved bigint;
BEGIN
    -- The mark is local to the round's transaction: without it, something inside the round (a handler) has
    -- ended that transaction, and the jobs are not in this one.
    IF current_setting('bothy.in_round', true) IS DISTINCT FROM consumer THEN
        RAISE EXCEPTION 'the transaction that moves the cursor of consumer % is not that of its round', to_json(consumer)
            USING ERRCODE = 'BT002', HINT = 'A handler must not run COMMIT or ROLLBACK. Nothing was moved.';
    END IF;
    UPDATE {{schema}}.event_consumer_cursors c SET last_seq = advance_cursor."next", updated_at = now()
    WHERE c.name = advance_cursor.consumer AND c.last_seq = advance_cursor.expected
      AND advance_cursor."next" > advance_cursor.expected;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved <> 1 THEN
        RAISE EXCEPTION 'the cursor of consumer % did not move from % to %',
            to_json(consumer), coalesce(expected::text, 'null'), coalesce("next"::text, 'null')
            USING ERRCODE = 'BT002', HINT = 'The row is missing, stands elsewhere, or would not move forward. Nothing was changed.';
    END IF;
END
$bothy$;

REVOKE ALL ON FUNCTION {{schema}}.advance_cursor(text, bigint, bigint) FROM PUBLIC;

INSERT INTO {{schema}}.schema_migration (version, name, oldest_binary) VALUES (5, 'cursors', 1);
