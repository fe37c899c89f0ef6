-- The usage of traffic quotas. See the one for SQLite.
CREATE TABLE IF NOT EXISTS ferrum_usage (
  config VARBINARY(254) NOT NULL,
  usage_key VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  period_end BIGINT NOT NULL,
  label VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  used BIGINT NOT NULL,
  PRIMARY KEY (config, usage_key, period_end)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS ferrum_usage_claims (
  config VARBINARY(254) NOT NULL,
  usage_key VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  period_end BIGINT NOT NULL,
  gateway VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  bytes BIGINT NOT NULL,
  claimed_at BIGINT NOT NULL,
  PRIMARY KEY (config, usage_key, period_end, gateway)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS ferrum_usage_history (
  config VARBINARY(254) NOT NULL,
  step BIGINT NOT NULL,
  step_number BIGINT NOT NULL,
  usage_key VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  label VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  bytes BIGINT NOT NULL,
  PRIMARY KEY (config, step, step_number, usage_key)
) ENGINE = InnoDB;
