-- The passkeys of users of the console. A user without a row has none.
CREATE TABLE ferrum_user_passkeys (
  name TEXT PRIMARY KEY NOT NULL,
  passkeys TEXT NOT NULL         -- a list, as JSON: public keys and counters, no secrets
) STRICT;
