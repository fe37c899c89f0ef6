-- Named sets of objects, for grants. See the one for SQLite.
CREATE TABLE IF NOT EXISTS ferrum_workspaces (
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
  covers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  changed_at BIGINT NOT NULL
) ENGINE = InnoDB;
