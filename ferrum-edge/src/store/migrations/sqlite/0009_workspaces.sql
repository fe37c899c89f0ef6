-- Named sets of objects, for grants. Not part of the history.
CREATE TABLE ferrum_workspaces (
  name TEXT PRIMARY KEY NOT NULL,
  covers TEXT NOT NULL,          -- objects, hosts, paths, ports and protocols, as JSON
  changed_at INTEGER NOT NULL    -- milliseconds since 1970 UTC
) STRICT;
