//! Which plugins lists show together.

/// What a plugin is mainly for, by which consoles and pages group the plugins. The order of execution does not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Family {
    /// Who the caller is.
    Authentication,
    /// Who may come, how often, and with how much.
    Admission,
    /// Protection against attacks and against what is malformed.
    Security,
    /// Changes of requests and responses.
    Transformation,
    /// What the gateway answers itself.
    Content,
    /// Which target gets the traffic.
    Traffic,
    /// Answers that are given again.
    Caching,
    /// Programs of the operator's own.
    Scripting,
    /// What is seen of the traffic.
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
