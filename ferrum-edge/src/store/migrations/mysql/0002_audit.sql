-- The audit: who did what. See the one for SQLite.
CREATE TABLE IF NOT EXISTS ferrum_audit (
  seq BIGINT PRIMARY KEY,
  at BIGINT NOT NULL,
  entry MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  hash VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE = InnoDB;
