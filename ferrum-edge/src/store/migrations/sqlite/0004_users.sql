-- Users of the console. Not part of the history: a rollback of the configuration leaves them.
CREATE TABLE ferrum_users (
  name TEXT PRIMARY KEY NOT NULL,
  role TEXT NOT NULL,            -- read, write or admin
  hash TEXT NOT NULL,            -- argon2id, as a PHC string
  must_change INTEGER NOT NULL,  -- 1: has to choose a password before anything else
  version INTEGER NOT NULL,      -- counts changes; sessions of an older one have ended
  created_at INTEGER NOT NULL,   -- milliseconds since 1970 UTC
  changed_at INTEGER NOT NULL,
  login_at INTEGER NOT NULL      -- 0: never
) STRICT;
