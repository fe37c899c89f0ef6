//! Probes against scripted peers.
