-- Users of the console. See the one for SQLite.
CREATE TABLE ferrum_users (
  name TEXT COLLATE "C" PRIMARY KEY,
  role TEXT NOT NULL,
  hash TEXT NOT NULL,
  must_change BIGINT NOT NULL,
  version BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  login_at BIGINT NOT NULL
);
