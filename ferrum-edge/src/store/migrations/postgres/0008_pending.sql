-- Changes that wait for the approval of another user. See the one for SQLite.
CREATE TABLE ferrum_pending (
  number BIGINT PRIMARY KEY,
  state TEXT NOT NULL,
  author TEXT NOT NULL,
  source TEXT NOT NULL,
  role TEXT NOT NULL,
  note TEXT NOT NULL,
  base BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  decided_by TEXT NOT NULL,
  decided_at BIGINT NOT NULL,
  reason TEXT NOT NULL,
  revision BIGINT NOT NULL,
  objects TEXT NOT NULL,
  documents TEXT NOT NULL
);
