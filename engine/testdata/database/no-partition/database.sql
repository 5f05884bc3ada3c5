UPDATE bothy.event_seq SET seq = 2000000;
