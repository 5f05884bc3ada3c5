INSERT INTO bothy.event_log (seq, id, type) VALUES (1, gen_random_uuid(), 'order.placed');
