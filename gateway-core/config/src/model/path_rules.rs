//! Rules of a proxy for ambiguous paths.

/// How the gateway handles paths that a target may interpret differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathRules {
    /// `%2F`. Default: the gateway rejects it.
    pub encoded_slash: PathPolicy,
    /// `\` and `%5C`. Default: the gateway rejects them.
    pub backslash: PathPolicy,
    /// `%252F` and the like. Default: the gateway rejects them.
    pub double_encoding: PathPolicy,
    /// `;` and the rest of its segment. Default: the target receives them.
    pub parameters: Parameters,
}

/// How the gateway handles an ambiguous path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathPolicy {
    /// The gateway answers 400.
    #[default]
    Refuse,
    /// The target receives the path unchanged.
    Keep,
    /// The gateway decodes the path before it routes and forwards the request.
    Decode,
}

/// How the gateway handles parameters in path segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parameters {
    /// The target receives them.
    #[default]
    Keep,
    /// The gateway answers 400.
    Refuse,
    /// The gateway removes them before it routes and forwards the request.
    Remove,
}
