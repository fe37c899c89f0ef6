-- Named sets of objects, for grants. See the one for SQLite.
CREATE TABLE ferrum_workspaces (
  name TEXT COLLATE "C" PRIMARY KEY,
  covers TEXT NOT NULL,
  changed_at BIGINT NOT NULL
);
