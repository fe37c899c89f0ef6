-- The fleet: edges, invitations, the authority and the epoch. See the one for SQLite.
CREATE TABLE ferrum_fleet (
  kind TEXT COLLATE "C" NOT NULL,
  id TEXT COLLATE "C" NOT NULL,
  document TEXT NOT NULL,
  version BIGINT NOT NULL,
  PRIMARY KEY (kind, id)
);
INSERT INTO ferrum_fleet VALUES ('stamp', '', '{}', 0);
