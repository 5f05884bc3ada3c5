CREATE SCHEMA shop;
CREATE TABLE shop.watchers (person text);
GRANT SELECT ON shop.watchers TO bothy_app;
