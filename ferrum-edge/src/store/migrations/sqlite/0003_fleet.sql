-- The fleet: edges, invitations, the authority and the epoch. Not part of the history: a rollback of the configuration leaves it.
CREATE TABLE ferrum_fleet (
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  document TEXT NOT NULL,    -- JSON
  version INTEGER NOT NULL,  -- counts changes of the row; of the row `stamp`, changes of the table
  PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
INSERT INTO ferrum_fleet VALUES ('stamp', '', '{}', 0);
