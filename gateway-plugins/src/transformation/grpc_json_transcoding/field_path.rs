//! Paths of fields within messages, as paths and queries of requests name them.

use prost_reflect::{Kind, MessageDescriptor};

/// Messages within messages that a field's path may name.
const MAX_DEPTH: usize = 32;

/// A field's path by the names in the definition, where it may be written with those of JSON.
pub(super) fn resolved(about: &MessageDescriptor, path: &str) -> Result<String, String> {
    let mut names = Vec::new();
    let mut about = Some(about.clone());
    for part in path.split('.').take(MAX_DEPTH + 1) {
        let here = about.ok_or_else(|| format!("`{path}` is within a value"))?;
        let field = here.get_field_by_name(part).or_else(|| here.get_field_by_json_name(part));
        let field = field.ok_or_else(|| format!("`{}` has no field `{part}`", here.full_name()))?;
        about = match field.kind() {
            Kind::Message(inner) if !field.is_list() && !field.is_map() => Some(inner),
            _ => None,
        };
        names.push(field.name().to_owned());
    }
    if names.len() > MAX_DEPTH { Err(format!("`{path}` is too deep")) } else { Ok(names.join(".")) }
}

/// Checks that a path in a template can be set.
pub(super) fn check(about: &MessageDescriptor, path: &str) -> Result<(), String> {
    let names = resolved(about, path)?;
    if names != path {
        return Err(format!("`{path}` is written `{names}`"));
    }
    let mut about = about.clone();
    for part in path.split('.') {
        let Some(field) = about.get_field_by_name(part) else { break };
        if field.is_list() || field.is_map() {
            return Err(format!("`{path}` is repeated, and can't be in a path"));
        }
        if let Kind::Message(inner) = field.kind() {
            about = inner;
        }
    }
    Ok(())
}
