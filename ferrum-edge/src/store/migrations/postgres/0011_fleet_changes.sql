-- Which rows of the fleet each change touched. See the one for SQLite.
CREATE TABLE ferrum_fleet_changes (
  stamp BIGINT NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  id TEXT COLLATE "C" NOT NULL,
  token TEXT NOT NULL,
  PRIMARY KEY (stamp, kind, id)
);
