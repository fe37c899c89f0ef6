-- For what objects the role of a user counts. See the one for SQLite.
CREATE TABLE ferrum_user_grants (
  name TEXT COLLATE "C" PRIMARY KEY,
  grants TEXT NOT NULL
);
