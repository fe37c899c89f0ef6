//! A fleet from the operator's side: the real program as control planes and edges.

mod bench;
mod enrolment;
mod groups;
mod machines;
mod own_authority;
mod place;
mod serving;
mod skew;
mod stores;
