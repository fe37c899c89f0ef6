-- Changes that wait for the approval of another user. See the one for SQLite.
CREATE TABLE IF NOT EXISTS ferrum_pending (
  number BIGINT PRIMARY KEY,
  state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  author VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  source VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  role VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  note TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  base BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  decided_by VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  decided_at BIGINT NOT NULL,
  reason TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  revision BIGINT NOT NULL,
  objects LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  documents LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE = InnoDB;
