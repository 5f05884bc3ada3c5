CREATE SCHEMA shop;
CREATE TABLE shop.positions (kind text, last_seq bigint);
