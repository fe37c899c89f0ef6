//! Layers over a file.
