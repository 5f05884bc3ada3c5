-- SPDX-License-Identifier: Apache-2.0
-- Partitions of the log, made ahead of the head.

-- The partitions of the log in order: the first number of each and the first number after it.
CREATE FUNCTION {{schema}}.event_log_partitions(OUT name text, OUT first bigint, OUT after bigint) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $bothy$
    SELECT c.relname::text, bounds[1]::bigint, bounds[2]::bigint
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    CROSS JOIN regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?(-?\d+)''?\) TO \(''?(-?\d+)''?\)') bounds
    WHERE i.inhparent = ({{schema_literal}} || '.event_log')::regclass AND bounds IS NOT NULL
    ORDER BY 2
$bothy$;

-- Makes partitions of size numbers until the next number has one and ahead whole ones lie above that, and
-- answers how many it made. A new one starts where the last one ends, so the size may change at any time.
CREATE FUNCTION {{schema}}.make_partitions(size bigint, ahead integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $bothy$
DECLARE
    next_seq bigint;
    start    bigint;
    above    integer;
    made     integer := 0;
    child    text;
BEGIN
    IF size IS NULL OR size < 1 OR ahead IS NULL OR ahead NOT BETWEEN 0 AND 1000 THEN
        RAISE EXCEPTION 'make_partitions: size % and ahead %: give a size of at least 1 and 0 to 1000 partitions ahead',
            coalesce(size::text, 'null'), coalesce(ahead::text, 'null') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Conflicts with itself and not with reading or appending: two runs take turns.
    LOCK TABLE {{schema}}.event_log IN SHARE UPDATE EXCLUSIVE MODE;
    SELECT c.seq + 1 INTO STRICT next_seq FROM {{schema}}.event_seq c WHERE c.one;
    SELECT coalesce(max(p.after), 1), count(*) FILTER (WHERE p.first > next_seq) INTO start, above
    FROM {{schema}}.event_log_partitions() p;
    -- A counter far above the last partition (a restore, a long burst) needs no partitions for the past.
    IF next_seq > start THEN
        start := start + (next_seq - start) / size * size;
    END IF;
    WHILE start <= next_seq OR above < ahead LOOP
        child := 'event_log_p' || start;
        -- Made apart and then attached: creating it in place would lock out every reader and producer.
        EXECUTE format('CREATE TABLE %s.%I (LIKE %s.event_log INCLUDING ALL)', {{schema_literal}}, child, {{schema_literal}});
        EXECUTE format('ALTER TABLE %s.event_log ATTACH PARTITION %s.%I FOR VALUES FROM (%s) TO (%s)',
            {{schema_literal}}, {{schema_literal}}, child, start, start + size);
        IF start > next_seq THEN
            above := above + 1;
        END IF;
        start := start + size;
        made := made + 1;
    END LOOP;
    UPDATE {{schema}}.event_seq c SET upper_bound = start WHERE c.one AND c.upper_bound <> start;
    RETURN made;
END
$bothy$;

REVOKE ALL ON FUNCTION {{schema}}.event_log_partitions() FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.make_partitions(bigint, integer) FROM PUBLIC;

INSERT INTO {{schema}}.schema_migration (version, name, oldest_binary) VALUES (4, 'partitions', 1);
