-- For what objects the role of a user counts. See the one for SQLite.
CREATE TABLE IF NOT EXISTS ferrum_user_grants (
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
  grants MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE = InnoDB;
