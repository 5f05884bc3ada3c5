DELETE FROM bothy.instance;
