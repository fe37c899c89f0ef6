-- The second factor of a user. See the one for SQLite.
CREATE TABLE ferrum_user_totp (
  name TEXT COLLATE "C" PRIMARY KEY,
  required BIGINT NOT NULL,
  secret TEXT NOT NULL,
  pending TEXT NOT NULL,
  used_step BIGINT NOT NULL,
  recovery TEXT NOT NULL
);
