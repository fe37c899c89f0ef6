-- The second factor of a user. See the one for SQLite.
CREATE TABLE IF NOT EXISTS ferrum_user_totp (
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
  required BIGINT NOT NULL,
  secret VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  pending VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  used_step BIGINT NOT NULL,
  recovery VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE = InnoDB;
