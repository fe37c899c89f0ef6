//! Kept connections to targets, generic over the connection.
