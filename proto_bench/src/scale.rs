//! stub
#[derive(Debug, thiserror::Error)]
pub enum ScaleError { #[error("x")] X }
