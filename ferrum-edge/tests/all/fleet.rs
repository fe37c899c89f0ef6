//! A fleet as its operators see it: the real program as control planes and edges.

mod enrolment;
mod groups;
mod place;
mod serving;
mod stores;
