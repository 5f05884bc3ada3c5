INSERT INTO bothy.schema_migration (version, name, oldest_binary) VALUES (9000, 'later', 8000);
