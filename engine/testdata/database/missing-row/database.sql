DELETE FROM bothy.event_seq;
