-- The fleet: edges, invitations, the authority and the epoch. See the one for SQLite.
CREATE TABLE IF NOT EXISTS ferrum_fleet (
  kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  id VARBINARY(254) NOT NULL,
  document MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  version BIGINT NOT NULL,
  PRIMARY KEY (kind, id)
) ENGINE = InnoDB;
INSERT INTO ferrum_fleet VALUES ('stamp', '', '{}', 0) ON DUPLICATE KEY UPDATE id = '';
