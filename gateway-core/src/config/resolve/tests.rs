//! Resolving, as people see it.
