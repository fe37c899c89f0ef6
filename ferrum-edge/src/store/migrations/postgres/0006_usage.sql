-- The usage of traffic quotas. See the one for SQLite.
CREATE TABLE ferrum_usage (
  config TEXT COLLATE "C" NOT NULL,
  usage_key TEXT COLLATE "C" NOT NULL,
  period_end BIGINT NOT NULL,
  label TEXT NOT NULL,
  used BIGINT NOT NULL,
  PRIMARY KEY (config, usage_key, period_end)
);
CREATE TABLE ferrum_usage_claims (
  config TEXT COLLATE "C" NOT NULL,
  usage_key TEXT COLLATE "C" NOT NULL,
  period_end BIGINT NOT NULL,
  gateway TEXT COLLATE "C" NOT NULL,
  bytes BIGINT NOT NULL,
  claimed_at BIGINT NOT NULL,
  PRIMARY KEY (config, usage_key, period_end, gateway)
);
CREATE TABLE ferrum_usage_history (
  config TEXT COLLATE "C" NOT NULL,
  step BIGINT NOT NULL,
  step_number BIGINT NOT NULL,
  usage_key TEXT COLLATE "C" NOT NULL,
  label TEXT NOT NULL,
  bytes BIGINT NOT NULL,
  PRIMARY KEY (config, step, step_number, usage_key)
);
