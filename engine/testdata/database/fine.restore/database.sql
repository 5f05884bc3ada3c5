CREATE SCHEMA shop;
CREATE TABLE shop.positions (kind text, last_seq bigint);
GRANT USAGE ON SCHEMA shop TO bothy_owner;
GRANT SELECT, UPDATE ON shop.positions TO bothy_owner;
