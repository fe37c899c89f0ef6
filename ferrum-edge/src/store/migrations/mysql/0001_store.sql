-- The state of now, its history as an undo log, and the one row all writers lock. See the one for SQLite. MySQL commits
-- each of these statements by itself, so each may meet what a broken-off run left behind.
CREATE TABLE IF NOT EXISTS ferrum_store (
  id SMALLINT PRIMARY KEY CHECK (id = 1),
  revision BIGINT NOT NULL,
  changes BIGINT NOT NULL,
  oldest BIGINT NOT NULL,
  oldest_changes BIGINT NOT NULL
) ENGINE = InnoDB;
INSERT INTO ferrum_store VALUES (1, 0, 0, 0, 0) ON DUPLICATE KEY UPDATE id = 1;
CREATE TABLE IF NOT EXISTS ferrum_objects (
  kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  id VARBINARY(254) NOT NULL,
  document MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  revision BIGINT NOT NULL,
  PRIMARY KEY (kind, id)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS ferrum_revisions (
  revision BIGINT PRIMARY KEY,
  at BIGINT NOT NULL,
  author VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  source VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  note TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  token VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created BIGINT NOT NULL,
  updated BIGINT NOT NULL,
  deleted BIGINT NOT NULL,
  changes BIGINT NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS ferrum_changes (
  revision BIGINT NOT NULL,
  kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  id VARBINARY(254) NOT NULL,
  was MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  PRIMARY KEY (revision, kind, id)
) ENGINE = InnoDB;
