-- The state of now, its history as an undo log, and the one row all writers lock.
CREATE TABLE ferrum_store (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  revision INTEGER NOT NULL,      -- the state of now
  changes INTEGER NOT NULL,       -- changed objects, over all revisions up to now
  oldest INTEGER NOT NULL,        -- the oldest state that can be restored
  oldest_changes INTEGER NOT NULL -- changed objects up to that one
) STRICT;
INSERT INTO ferrum_store VALUES (1, 0, 0, 0, 0);
CREATE TABLE ferrum_objects (
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  document TEXT NOT NULL,      -- JSON, as it was put
  created_at INTEGER NOT NULL, -- milliseconds since 1970 UTC
  updated_at INTEGER NOT NULL,
  revision INTEGER NOT NULL,   -- that changed it last
  PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE ferrum_revisions (
  revision INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  author TEXT NOT NULL,
  source TEXT NOT NULL,
  note TEXT NOT NULL,
  token TEXT NOT NULL,         -- by which a writer finds its own revision again
  created INTEGER NOT NULL,
  updated INTEGER NOT NULL,
  deleted INTEGER NOT NULL,
  changes INTEGER NOT NULL     -- changed objects, over all revisions up to this one
) STRICT;
CREATE TABLE ferrum_changes (
  revision INTEGER NOT NULL,
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  was TEXT,                    -- the document before; NULL: there was none
  PRIMARY KEY (revision, kind, id)
) STRICT, WITHOUT ROWID;
