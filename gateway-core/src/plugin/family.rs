//! Which plugins lists show together.

/// What a plugin is mainly for, by which consoles and pages group the plugins. The order of execution does not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Family {
    /// Identifies callers.
    Authentication,
    /// Limits who sends requests, how many, and how large.
    Admission,
    /// Protects against attacks and malformed requests.
    Security,
    /// Changes requests and responses.
    Transformation,
    /// Answers requests without a target.
    Content,
    /// Chooses targets.
    Traffic,
    /// Stores and reuses responses.
    Caching,
    /// Runs programs of the operator.
    Scripting,
    /// Makes traffic traceable.
    Observability,
    /// None of these.
    #[default]
    Other,
}

impl Family {
    /// Its word in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Admission => "admission",
            Self::Security => "security",
            Self::Transformation => "transformation",
            Self::Content => "content",
            Self::Traffic => "traffic",
            Self::Caching => "caching",
            Self::Scripting => "scripting",
            Self::Observability => "observability",
            Self::Other => "other",
        }
    }
}
