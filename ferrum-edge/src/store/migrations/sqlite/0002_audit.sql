-- The audit: who did what. Each entry's hash is that of its text, which holds the hash of the entry before.
CREATE TABLE ferrum_audit (
  seq INTEGER PRIMARY KEY,     -- counts from 1, without gaps; the oldest are pruned
  at INTEGER NOT NULL,         -- milliseconds since 1970 UTC
  entry TEXT NOT NULL,         -- JSON, as it was hashed
  hash TEXT NOT NULL
) STRICT;
