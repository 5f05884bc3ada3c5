CREATE SCHEMA "Shop";
CREATE TABLE "Shop"."Watchers" (person text);
GRANT USAGE ON SCHEMA "Shop" TO bothy_app;
GRANT SELECT ON "Shop"."Watchers" TO bothy_app;
