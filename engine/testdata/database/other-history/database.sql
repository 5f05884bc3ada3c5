UPDATE bothy.instance SET pg_timeline_id = pg_timeline_id + 1;
