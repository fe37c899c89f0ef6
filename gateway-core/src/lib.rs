//! gateway-core
