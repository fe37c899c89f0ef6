-- The audit: who did what. See the one for SQLite.
CREATE TABLE ferrum_audit (
  seq BIGINT PRIMARY KEY,
  at BIGINT NOT NULL,
  entry TEXT NOT NULL,
  hash TEXT NOT NULL
);
