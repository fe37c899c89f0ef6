-- The passkeys of users of the console. See the one for SQLite.
CREATE TABLE ferrum_user_passkeys (
  name TEXT COLLATE "C" PRIMARY KEY,
  passkeys TEXT NOT NULL
);
