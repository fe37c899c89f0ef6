-- The usage of traffic quotas. Not part of the history: a rollback of the configuration leaves it.
CREATE TABLE ferrum_usage (
  config TEXT NOT NULL,        -- the plugin config's id
  usage_key TEXT NOT NULL,     -- 16 hexadecimal digits
  period_end INTEGER NOT NULL, -- seconds since 1970 UTC
  label TEXT NOT NULL,         -- the key, for people
  used INTEGER NOT NULL,       -- bytes of all gateways
  PRIMARY KEY (config, usage_key, period_end)
) STRICT, WITHOUT ROWID;
CREATE TABLE ferrum_usage_claims (
  config TEXT NOT NULL,
  usage_key TEXT NOT NULL,
  period_end INTEGER NOT NULL,
  gateway TEXT NOT NULL,       -- one run of a gateway
  bytes INTEGER NOT NULL,      -- count as used if that run ends without a word
  claimed_at INTEGER NOT NULL, -- seconds since 1970 UTC, by the database's clock
  PRIMARY KEY (config, usage_key, period_end, gateway)
) STRICT, WITHOUT ROWID;
CREATE TABLE ferrum_usage_history (
  config TEXT NOT NULL,
  step INTEGER NOT NULL,       -- seconds: 60 or 3600
  step_number INTEGER NOT NULL, -- counted from 1970 UTC
  usage_key TEXT NOT NULL,
  label TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY (config, step, step_number, usage_key)
) STRICT, WITHOUT ROWID;
