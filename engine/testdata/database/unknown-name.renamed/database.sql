-- names: none
ALTER TABLE bothy.event_consumer_cursors DROP CONSTRAINT event_consumer_cursors_name_check,
    ADD CONSTRAINT event_consumer_cursors_name_check CHECK (name = ANY (ARRAY['archives']::text[]));
INSERT INTO bothy.event_consumer_cursors (name) VALUES ('archives');
SELECT bothy.append_event('order.placed', NULL, NULL, NULL, NULL);
