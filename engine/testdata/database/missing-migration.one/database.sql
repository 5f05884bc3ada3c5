DELETE FROM bothy.schema_migration WHERE version = 3;
