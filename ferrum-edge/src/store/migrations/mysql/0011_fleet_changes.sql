-- Which rows of the fleet each change touched. See the one for SQLite.
CREATE TABLE IF NOT EXISTS ferrum_fleet_changes (
  stamp BIGINT NOT NULL,
  kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  id VARBINARY(254) NOT NULL,
  token VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (stamp, kind, id)
) ENGINE = InnoDB;
