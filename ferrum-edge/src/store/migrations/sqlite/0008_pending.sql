-- Changes that wait for the approval of another user, and what became of them. Not part of the history.
CREATE TABLE ferrum_pending (
  number INTEGER PRIMARY KEY NOT NULL,
  state TEXT NOT NULL,           -- pending, approved, rejected, withdrawn or expired
  author TEXT NOT NULL,
  source TEXT NOT NULL,          -- how the author came, as in ferrum_revisions
  role TEXT NOT NULL,            -- that the change needs
  note TEXT NOT NULL,
  base INTEGER NOT NULL,         -- the revision it was made to
  created_at INTEGER NOT NULL,   -- milliseconds since 1970 UTC
  expires_at INTEGER NOT NULL,
  decided_by TEXT NOT NULL,      -- empty: nobody yet
  decided_at INTEGER NOT NULL,   -- 0: not yet
  reason TEXT NOT NULL,          -- of the decision
  revision INTEGER NOT NULL,     -- that came of it; 0: none
  objects TEXT NOT NULL,         -- kind, id and action of each object, as JSON
  documents TEXT NOT NULL        -- each object before and after, as JSON; empty once it is decided
) STRICT;
