-- Which rows of the fleet each change touched, so that a control plane reads what another one changed and not the whole fleet.
-- A change that is not listed, such as that of a workspace, has control planes read everything.
CREATE TABLE ferrum_fleet_changes (
  stamp INTEGER NOT NULL,    -- the version of the row `stamp` from this change on
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  token TEXT NOT NULL,       -- random: the same stamp of another history, such as a restored backup's, has another one
  PRIMARY KEY (stamp, kind, id)
) STRICT, WITHOUT ROWID;
