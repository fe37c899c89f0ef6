//! Paths that a proxy decides on.

/// What becomes of paths that targets may read otherwise than the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathRules {
    /// `%2F`. Default refused.
    pub encoded_slash: PathPolicy,
    /// `\` and `%5C`. Default refused.
    pub backslash: PathPolicy,
    /// `%252F` and the like. Default refused.
    pub double_encoding: PathPolicy,
    /// `;` and what follows in a segment. Default kept.
    pub parameters: Parameters,
}

/// What becomes of an odd path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathPolicy {
    /// 400.
    #[default]
    Refuse,
    /// The target gets it as it is.
    Keep,
    /// It is decoded before it is routed and forwarded.
    Decode,
}

/// What becomes of parameters in segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parameters {
    /// The target gets them.
    #[default]
    Keep,
    /// 400.
    Refuse,
    /// They are removed before the path is routed and forwarded.
    Remove,
}
