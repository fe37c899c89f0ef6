//! What people read when a document is wrong.
