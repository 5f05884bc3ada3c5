CREATE SCHEMA shop;
CREATE TABLE shop.positions (kind text, last_seq bigint, made bigint GENERATED ALWAYS AS (last_seq + 1) STORED);
CREATE VIEW shop.shown AS SELECT * FROM shop.positions;
GRANT USAGE ON SCHEMA shop TO bothy_owner, bothy_app;
GRANT SELECT, UPDATE ON shop.positions, shop.shown TO bothy_owner, bothy_app;
