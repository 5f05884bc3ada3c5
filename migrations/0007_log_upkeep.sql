-- SPDX-License-Identifier: Apache-2.0
-- The upkeep of the log: partitions by fill level, so that an append that would find none makes one, and the
-- end of those that retention lets go.

-- What make_partitions was told last, so that an append makes partitions of the same size; and how long events
-- are kept at least, which nobody but the owner can shorten.
--
-- Every session knows the partitions of the numbers below settled. A session that reads the list of partitions at
-- the moment in which another one is attached can miss that one and, since it took note of the news while it was
-- reading, go on missing it until the next news of the log. So a new bound waits to be settled: settle_at is the
-- transaction that all of those who may have been reading come before, and told says that news was sent since.
ALTER TABLE {{schema}}.event_seq ADD COLUMN partition_size bigint,
    ADD COLUMN settled bigint NOT NULL DEFAULT 1,
    ADD COLUMN settle_at xid8,
    ADD COLUMN told boolean NOT NULL DEFAULT false,
    ADD COLUMN retention interval NOT NULL DEFAULT '720:00:00' CHECK (retention >= interval '1 hour');

-- Since when partitions are kept beyond their time for consumers that have still to read them, and when that was
-- looked at last: time in which nobody looked, and so no engine ran, does not count.
CREATE TABLE {{schema}}.event_log_hold (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    since timestamptz,
    seen  timestamptz
);

INSERT INTO {{schema}}.event_log_hold DEFAULT VALUES;

-- Sends every session news of the log, this one included, after which each reads the list of its partitions anew.
CREATE FUNCTION {{schema}}.tell_partitions() RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $bothy$
    -- Sets what is set already: the mildest change that PostgreSQL tells all others of.
    ALTER TABLE ONLY {{schema}}.event_log ALTER COLUMN seq SET STATISTICS -1
$bothy$;

-- Makes one partition. It is made apart and then attached: creating it in place would lock out every reader
-- and producer.
CREATE FUNCTION {{schema}}.make_partition(first bigint, after bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $bothy$
DECLARE
    child constant text := 'event_log_p' || first;
BEGIN
    EXECUTE format('CREATE TABLE %s.%I (LIKE %s.event_log INCLUDING ALL)', {{schema_literal}}, child, {{schema_literal}});
    EXECUTE format('ALTER TABLE %s.event_log ATTACH PARTITION %s.%I FOR VALUES FROM (%s) TO (%s)',
        {{schema_literal}}, {{schema_literal}}, child, first, after);
END
$bothy$;

-- Writes that the numbers below bound have partitions, and settles them, one step at each call: the news is sent
-- once everybody is gone who may have missed a partition, and believed to be known in a transaction after that
-- one. The caller holds the lock on the log. A producer that is numbering holds the counter row and may want that
-- lock: one of the two must not wait for long, so this one gives up.
CREATE FUNCTION {{schema}}.raise_bound(bound bigint, size bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $bothy$
DECLARE
    state record;
BEGIN
    SELECT c.upper_bound <> bound OR c.partition_size IS DISTINCT FROM size AS moves, c.settled < c.upper_bound AS unsettled,
           c.told, c.settle_at, pg_current_snapshot() AS running
    INTO state FROM {{schema}}.event_seq c WHERE c.one;
    IF state.moves THEN
        UPDATE {{schema}}.event_seq c SET partition_size = size, upper_bound = bound, settle_at = NULL, told = false WHERE c.one;
    ELSIF NOT state.unsettled OR current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    ELSIF state.told THEN
        UPDATE {{schema}}.event_seq c SET settled = bound, settle_at = NULL, told = false WHERE c.one AND c.told;
    ELSIF state.settle_at IS NULL THEN
        UPDATE {{schema}}.event_seq c SET settle_at = pg_snapshot_xmax(state.running) WHERE c.one;
    ELSIF pg_snapshot_xmin(state.running) >= state.settle_at THEN
        UPDATE {{schema}}.event_seq c SET told = true WHERE c.one AND c.settle_at = state.settle_at;
        IF FOUND THEN
            PERFORM {{schema}}.tell_partitions();
        END IF;
    END IF;
EXCEPTION WHEN lock_not_available THEN
    NULL;
END
$bothy$;

-- Makes partitions of size numbers until the next number has one and ahead whole ones lie above that, and
-- answers how many it made. A new one starts where the last one ends, so the size may change at any time.
CREATE OR REPLACE FUNCTION {{schema}}.make_partitions(size bigint, ahead integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $bothy$
DECLARE
    next_seq bigint;
    start    bigint;
    above    integer;
    made     integer := 0;
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
        PERFORM {{schema}}.make_partition(start, start + size);
        IF start > next_seq THEN
            above := above + 1;
        END IF;
        start := start + size;
        made := made + 1;
    END LOOP;
    -- A new bound must not become visible together with its partitions: for a moment after a commit another
    -- session can read the bound and not know the partitions. So the run that finds nothing to make writes it,
    -- and until then make_room finds out. (A log that never had an event has no such sessions.)
    IF made = 0 OR next_seq = 1 THEN
        PERFORM {{schema}}.raise_bound(start, size);
    END IF;
    RETURN made;
END
$bothy$;

-- Gives the numbers first to last a partition, for the append that holds the counter row and found the bound
-- reached: the last resort when nobody made partitions ahead. It waits for no more than another run that makes
-- partitions, and then only shortly: every other producer waits behind it.
CREATE FUNCTION {{schema}}.make_room(first bigint, last bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $bothy$
DECLARE
    reach bigint;
    size  bigint;
    why   text;
BEGIN
    -- With the lock, whoever made partitions is done, and this session knows them.
    BEGIN
        LOCK TABLE {{schema}}.event_log IN SHARE UPDATE EXCLUSIVE MODE;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        why := 'another session keeps the lock that this takes (' || SQLERRM || ')';
    END;
    SELECT p.after, coalesce(c.partition_size, p.after - p.first) INTO reach, size
    FROM {{schema}}.event_seq c, {{schema}}.event_log_partitions() p WHERE c.one ORDER BY p.after DESC LIMIT 1;
    IF last < reach THEN
        UPDATE {{schema}}.event_seq c SET upper_bound = reach, settle_at = NULL, told = false WHERE c.one;
        RETURN;
    END IF;
    IF reach IS NULL THEN
        why := 'the log has no partition yet';
    END IF;
    IF why IS NULL THEN
        -- The bound stays as it is: see make_partitions.
        BEGIN
            IF first > reach THEN
                reach := reach + (first - reach) / size * size;
            END IF;
            -- One transaction with very many events gets a few large partitions, not thousands of small ones.
            size := greatest(size, (last - reach) / 50 + 1);
            WHILE reach <= last LOOP
                PERFORM {{schema}}.make_partition(reach, reach + size);
                reach := reach + size;
            END LOOP;
            RETURN;
        EXCEPTION
            WHEN duplicate_table OR invalid_object_definition THEN
                RAISE EXCEPTION 'the event log got new partitions after this transaction had taken its snapshot'
                    USING ERRCODE = 'serialization_failure',
                          HINT = 'Retry the whole transaction, or append in a READ COMMITTED transaction, which sees them.';
            WHEN OTHERS THEN
                why := SQLERRM;
        END;
    END IF;
    RAISE EXCEPTION 'the event log has no partition for number %', greatest(reach, first)
        USING ERRCODE = 'BT003', DETAIL = 'None could be made: ' || why || '.',
              HINT = 'Run "engine migrate up": it makes partitions ahead of the head. No event was stored and no number used.';
END
$bothy$;

-- Moves what transaction own staged, from ord on, into the log; the first gets the number after before.
CREATE FUNCTION {{schema}}.move_staged(own xid8, ord bigint, before bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $bothy$
BEGIN
    WITH moved AS (
        DELETE FROM {{schema}}.event_stage s WHERE s.xid = own AND s.ord >= move_staged.ord
        RETURNING s.ord, s.id, s.type, s.resource, s.resource_id, s.audience, s.payload, s.event_time
    )
    INSERT INTO {{schema}}.event_log (seq, id, type, resource, resource_id, audience, payload, occurred_at, event_time)
    SELECT before + row_number() OVER (ORDER BY m.ord),
           m.id, m.type, m.resource, m.resource_id, m.audience, m.payload, clock_timestamp(), m.event_time
    FROM moved m;
END
$bothy$;

-- The same for numbers whose partitions this session may have missed: it looks again when it finds none. That
-- costs a subtransaction, so it is not the common way.
CREATE FUNCTION {{schema}}.move_unsettled(own xid8, ord bigint, before bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $bothy$
DECLARE
    tries integer := 0;
BEGIN
    LOOP
        BEGIN
            PERFORM {{schema}}.move_staged(own, ord, before);
            RETURN;
        EXCEPTION WHEN check_violation THEN
            tries := tries + 1;
            IF tries > 3 THEN
                RAISE;
            END IF;
        END;
        PERFORM {{schema}}.tell_partitions();
    END LOOP;
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
        INSERT INTO {{schema}}.event_log (seq, id, type, resource, resource_id, audience, payload, occurred_at, event_time)
        VALUES (last, NEW.id, NEW.type, NEW.resource, NEW.resource_id, NEW.audience, NEW.payload, clock_timestamp(), NEW.event_time);
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

-- Drops the oldest partition when all its events are older than retention, and answers the first and the last
-- number that it could hold; nothing when there is none to drop, or another session is at it. The partition that
-- holds the head stays, and so does every later one. The lock that a drop needs keeps readers and producers
-- waiting behind it, so it gives up soon: call it again.
--
-- A partition that a consumer has still to read is kept for a while: for one hour, and for one retention while such
-- a consumer makes headway; with hold, as long as one of readers has still to read it. Those that count are
-- readers and whoever moved within the hour. unread are those that would lose events, or have lost them. It
-- answers the partition also when it is kept, with dropped false and, unless it waits for ever, until when.
--
-- system and timeline are the identity of the server as the caller may read it, or NULL. On a database that is not the
-- one whose history the cursors follow, nothing is dropped: what is gone no finalize brings back.
CREATE FUNCTION {{schema}}.drop_expired_partition(retention interval, readers text[], hold boolean, system bigint, timeline bigint,
    OUT first bigint, OUT last bigint, OUT dropped boolean, OUT unread text[], OUT until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $bothy$
DECLARE
    oldest   record;
    newest   record;
    moves    boolean;
    declared boolean;
BEGIN
    IF retention IS NULL OR retention < interval '1 hour' THEN
        RAISE EXCEPTION 'drop_expired_partition: retention is %: give at least 1 hour', coalesce(retention::text, 'null')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT pg_try_advisory_xact_lock(hashtextextended({{schema_literal}} || '.drop_expired_partition', 0)) THEN
        RETURN;
    END IF;
    PERFORM FROM {{schema}}.instance i WHERE i.pg_system_identifier <> system OR i.pg_timeline_id <> timeline;
    IF FOUND THEN
        RETURN;
    END IF;
    retention := greatest(retention, (SELECT c.retention FROM {{schema}}.event_seq c WHERE c.one));
    SELECT p.* INTO oldest FROM {{schema}}.event_log_partitions() p ORDER BY p.first LIMIT 1;
    IF oldest IS NULL OR oldest.after > (SELECT c.seq FROM {{schema}}.event_seq c WHERE c.one) THEN
        RETURN;
    END IF;
    -- Numbers rise with time, so the newest event is the last one. A partition whose events are gone has none.
    SELECT e.seq, e.occurred_at INTO newest FROM {{schema}}.event_log e
    WHERE e.seq >= oldest.first AND e.seq < oldest.after ORDER BY e.seq DESC LIMIT 1;
    IF newest.occurred_at >= clock_timestamp() - retention THEN
        UPDATE {{schema}}.event_log_hold h SET since = NULL WHERE h.one AND h.since IS NOT NULL;
        RETURN;
    END IF;

    first := oldest.first;
    last := oldest.after - 1;
    SELECT array_agg(c.name ORDER BY c.name), bool_or(c.updated_at > clock_timestamp() - interval '1 hour'), bool_or(c.name = ANY (readers))
    INTO unread, moves, declared
    FROM {{schema}}.event_consumer_cursors c
    WHERE c.last_seq < newest.seq AND (c.name = ANY (readers) OR c.updated_at > clock_timestamp() - interval '1 hour');
    IF unread IS NOT NULL THEN
        -- One clock for all partitions: a consumer that is slower than the producers must not keep them all.
        UPDATE {{schema}}.event_log_hold h SET seen = clock_timestamp(),
            since = CASE WHEN h.seen > clock_timestamp() - interval '10 minutes' THEN coalesce(h.since, clock_timestamp()) ELSE clock_timestamp() END
        WHERE h.one RETURNING h.since + CASE WHEN moves THEN retention ELSE interval '1 hour' END INTO until;
        IF hold AND declared THEN
            until := NULL;
        END IF;
        dropped := coalesce(until <= clock_timestamp(), false);
        IF NOT dropped THEN
            RETURN;
        END IF;
    END IF;
    EXECUTE format('DROP TABLE %s.%I', {{schema_literal}}, oldest.name);
    dropped := true;
END
$bothy$;

ALTER TABLE {{schema}}.audit_events DROP CONSTRAINT audit_events_action_check, ADD CONSTRAINT audit_events_action_check
    CHECK (action IN ('consumer.created', 'consumer.renamed', 'consumer.retired', 'consumer.lost'));

-- Writes down, in the round that skips them, which events a consumer lost to retention: afterwards nothing else tells
-- them from those that it read. Only what is true can be written: the cursor stands before the first of them, and
-- the log holds none.
CREATE FUNCTION {{schema}}.record_loss(consumer text, first bigint, last bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $bothy$
BEGIN
    IF current_setting('bothy.in_round', true) IS DISTINCT FROM consumer OR (first <= last) IS NOT TRUE
        OR NOT EXISTS (SELECT FROM {{schema}}.event_consumer_cursors c WHERE c.name = consumer AND c.last_seq = first - 1)
        OR last > (SELECT c.seq FROM {{schema}}.event_seq c WHERE c.one)
        OR EXISTS (SELECT FROM {{schema}}.event_log e WHERE e.seq BETWEEN first AND last) THEN
        RAISE EXCEPTION 'consumer % did not lose the events % to %', to_json(consumer), coalesce(first::text, 'null'), coalesce(last::text, 'null')
            USING ERRCODE = 'BT002', HINT = 'Only a round whose cursor stands before them, and that finds none of them, records it.';
    END IF;
    PERFORM {{schema}}.append_audit('consumer.lost', consumer, jsonb_build_object('first', first, 'last', last));
END
$bothy$;

REVOKE ALL ON FUNCTION {{schema}}.record_loss(text, bigint, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.tell_partitions() FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.raise_bound(bigint, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.move_staged(xid8, bigint, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.move_unsettled(xid8, bigint, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.make_partition(bigint, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.make_room(bigint, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION {{schema}}.drop_expired_partition(interval, text[], boolean, bigint, bigint) FROM PUBLIC;

INSERT INTO {{schema}}.schema_migration (version, name, oldest_binary) VALUES (7, 'log_upkeep', 1);
