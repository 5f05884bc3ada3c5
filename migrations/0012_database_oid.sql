-- SPDX-License-Identifier: Apache-2.0
-- Which database of the server the cursors follow. A dump that is loaded into the same server, and a copy by CREATE
-- DATABASE ... TEMPLATE, have the server's identifier and timeline; their number is another one. A base backup, recovery to a
-- point and a promotion keep it. NULL: not known yet, which keeps nobody from working; engine migrate up stores it.
ALTER TABLE {{schema}}.instance ADD COLUMN pg_database_oid bigint;

INSERT INTO {{schema}}.schema_migration (version, name, oldest_binary) VALUES (12, 'database_oid', 1);
