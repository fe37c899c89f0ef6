//! gateway-protocols
