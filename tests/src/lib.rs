//! Tests of the whole gateway: real sockets, scripted peers, one binary.
#![cfg(test)]

mod support;

mod admission;
