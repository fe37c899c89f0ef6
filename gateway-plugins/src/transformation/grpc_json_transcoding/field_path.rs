//! Paths of fields within messages, as paths and queries of requests name them.

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

/// Messages within messages that a field's path may name.
const MAX_DEPTH: usize = 32;

/// Why the path of a field can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FieldPathError {
    /// It goes on behind a field that is no message.
    #[error("`{0}` is within a value")]
    WithinValue(String),
    #[error("`{message}` has no field `{field}`")]
    NoField { message: String, field: String },
    #[error("`{0}` is too deep")]
    TooDeep(String),
    /// A template has to write it by the names in the definition.
    #[error("`{path}` is written `{names}`")]
    Spelling { path: String, names: String },
    #[error("`{0}` is repeated, and can't be in a path")]
    Repeated(String),
}

/// A field of a message by its name in the definition.
pub(super) fn field(about: &MessageDescriptor, name: &str) -> Result<FieldDescriptor, FieldPathError> {
    about.get_field_by_name(name).ok_or_else(|| no_field(about, name))
}

fn no_field(about: &MessageDescriptor, name: &str) -> FieldPathError {
    FieldPathError::NoField { message: about.full_name().to_owned(), field: name.to_owned() }
}

/// A field's path by the names in the definition, where it may be written with those of JSON.
pub(super) fn resolved(about: &MessageDescriptor, path: &str) -> Result<String, FieldPathError> {
    let mut names = Vec::new();
    let mut about = Some(about.clone());
    for part in path.split('.').take(MAX_DEPTH + 1) {
        let here = about.ok_or_else(|| FieldPathError::WithinValue(path.to_owned()))?;
        let field = here.get_field_by_name(part).or_else(|| here.get_field_by_json_name(part));
        let field = field.ok_or_else(|| no_field(&here, part))?;
        about = match field.kind() {
            Kind::Message(inner) if !field.is_list() && !field.is_map() => Some(inner),
            _ => None,
        };
        names.push(field.name().to_owned());
    }
    if names.len() > MAX_DEPTH {
        return Err(FieldPathError::TooDeep(path.to_owned()));
    }
    Ok(names.join("."))
}

/// Checks that a path in a template can be set.
pub(super) fn check(about: &MessageDescriptor, path: &str) -> Result<(), FieldPathError> {
    let names = resolved(about, path)?;
    if names != path {
        return Err(FieldPathError::Spelling { path: path.to_owned(), names });
    }
    let mut about = about.clone();
    for part in path.split('.') {
        let Some(field) = about.get_field_by_name(part) else { break };
        if field.is_list() || field.is_map() {
            return Err(FieldPathError::Repeated(path.to_owned()));
        }
        if let Kind::Message(inner) = field.kind() {
            about = inner;
        }
    }
    Ok(())
}
