-- The state of now, its history as an undo log, and the one row all writers lock. See the one for SQLite.
CREATE TABLE ferrum_store (
  id SMALLINT PRIMARY KEY CHECK (id = 1),
  revision BIGINT NOT NULL,
  changes BIGINT NOT NULL,
  oldest BIGINT NOT NULL,
  oldest_changes BIGINT NOT NULL
);
INSERT INTO ferrum_store VALUES (1, 0, 0, 0, 0);
CREATE TABLE ferrum_objects (
  kind TEXT COLLATE "C" NOT NULL,
  id TEXT COLLATE "C" NOT NULL,
  document TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  revision BIGINT NOT NULL,
  PRIMARY KEY (kind, id)
);
CREATE TABLE ferrum_revisions (
  revision BIGINT PRIMARY KEY,
  at BIGINT NOT NULL,
  author TEXT NOT NULL,
  source TEXT NOT NULL,
  note TEXT NOT NULL,
  token TEXT NOT NULL,
  created BIGINT NOT NULL,
  updated BIGINT NOT NULL,
  deleted BIGINT NOT NULL,
  changes BIGINT NOT NULL
);
CREATE TABLE ferrum_changes (
  revision BIGINT NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  id TEXT COLLATE "C" NOT NULL,
  was TEXT,
  PRIMARY KEY (revision, kind, id)
);
