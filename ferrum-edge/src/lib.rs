//! ferrum-edge
