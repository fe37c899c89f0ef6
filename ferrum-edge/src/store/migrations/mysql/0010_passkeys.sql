-- The passkeys of users of the console. See the one for SQLite.
CREATE TABLE IF NOT EXISTS ferrum_user_passkeys (
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
  passkeys MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE = InnoDB;
