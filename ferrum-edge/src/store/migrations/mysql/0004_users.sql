-- Users of the console. See the one for SQLite.
CREATE TABLE IF NOT EXISTS ferrum_users (
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
  role VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  hash VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  must_change BIGINT NOT NULL,
  version BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  login_at BIGINT NOT NULL
) ENGINE = InnoDB;
