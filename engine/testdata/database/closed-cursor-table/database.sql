CREATE SCHEMA shop;
CREATE TABLE shop.positions (kind text, last_seq bigint);
CREATE TABLE shop.hidden (kind text, last_seq bigint);
GRANT USAGE ON SCHEMA shop TO bothy_owner;
GRANT SELECT, UPDATE ON shop.hidden TO bothy_owner;
ALTER TABLE shop.hidden ENABLE ROW LEVEL SECURITY;
