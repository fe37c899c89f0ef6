-- The second factor of a user. A user without a row has none and needs none by a setting of the user.
CREATE TABLE ferrum_user_totp (
  name TEXT PRIMARY KEY NOT NULL,
  required INTEGER NOT NULL,     -- 1: the user has to enrol before anything else
  secret TEXT NOT NULL,          -- encrypted; empty: not enrolled
  pending TEXT NOT NULL,         -- encrypted; the next secret, until a code confirms it
  used_step INTEGER NOT NULL,    -- the 30 s step of the last accepted code
  recovery TEXT NOT NULL         -- SHA-256 of unused recovery codes, with spaces between
) STRICT;
