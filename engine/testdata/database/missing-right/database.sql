REVOKE UPDATE ON bothy.event_consumer_cursors FROM bothy_app;
