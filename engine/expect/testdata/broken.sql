CREATE TABLE one (a int);
CREATE TABLE two (a txt);
