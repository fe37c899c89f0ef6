//! Heads that are well-formed, and all the ways in which they are not.
