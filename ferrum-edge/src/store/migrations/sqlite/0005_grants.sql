-- For what objects the role of a user counts. A user without a row has the role for all of them.
CREATE TABLE ferrum_user_grants (
  name TEXT PRIMARY KEY NOT NULL,
  grants TEXT NOT NULL           -- a list, as JSON
) STRICT;
