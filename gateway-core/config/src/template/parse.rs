//! From a text to a template.

use http::HeaderName;

use super::variable::{FAMILIES, KNOWN, Moment, Variable};
use super::{MAX_TEMPLATE, Template, TemplatePart};
use crate::nearest::nearest;

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({remedy})")]
pub struct BadTemplate {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

fn bad<T>(message: impl Into<String>, remedy: impl Into<String>) -> Result<T, BadTemplate> {
    Err(BadTemplate { message: message.into(), remedy: remedy.into() })
}

pub(super) fn parse(text: &str, moment: Moment) -> Result<Template, BadTemplate> {
    if text.len() > MAX_TEMPLATE {
        return bad(format!("this has {} bytes", text.len()), format!("at most {MAX_TEMPLATE}"));
    }
    if text.chars().any(|c| c.is_control() && c != '\t') {
        return bad("this has control characters", "remove them");
    }
    let (mut parts, mut literal, mut rest) = (Vec::new(), String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        literal.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            literal.push('$');
            rest = after;
            continue;
        }
        let Some(inside) = after.strip_prefix('{') else {
            let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            return bad(
                "a `$` stands alone",
                format!("write `${{{name}…}}` for a value, or `$$` for the sign itself"),
            );
        };
        let Some((inside, after)) = inside.split_once('}') else {
            return bad("a value has no end", "close it with `}`");
        };
        if !literal.is_empty() {
            parts.push(TemplatePart::Text(std::mem::take(&mut literal).into()));
        }
        parts.push(value(inside, moment)?);
        rest = after;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(TemplatePart::Text(literal.into()));
    }
    Ok(Template { parts: parts.into() })
}

fn value(inside: &str, moment: Moment) -> Result<TemplatePart, BadTemplate> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if default.is_some_and(|default| default.contains("${")) {
        return bad("a default is a plain text", "leave `${` out of it");
    }
    let name = name.trim();
    let (variable, known_at) = variable(name)?;
    if known_at > moment {
        let when = match known_at {
            Moment::Attempt => "no target has been picked yet",
            Moment::Response => "there is no response yet",
            Moment::End | Moment::Request => "the exchange has not ended yet",
        };
        return bad(format!("`{name}` is not known here: {when}"), "remove it");
    }
    Ok(TemplatePart::Value { variable, default: default.map(Into::into) })
}

fn variable(name: &str) -> Result<(Variable, Moment), BadTemplate> {
    if let Some((_, moment, known)) = KNOWN.iter().find(|(known, ..)| *known == name) {
        return Ok((Variable::Known(*known), *moment));
    }
    let family =
        FAMILIES.iter().find_map(|(start, moment)| Some((*start, name.strip_prefix(start)?, *moment)));
    let Some((family, key, moment)) = family else { return unknown(name) };
    if key.is_empty() {
        return bad(format!("`{name}` has no name after its last dot"), "say which");
    }
    let variable = match family {
        "request.header." => Variable::RequestHeader(header(key)?),
        "response.header." => Variable::ResponseHeader(header(key)?),
        "request.query." => Variable::RequestQuery(key.into()),
        "request.cookie." => Variable::RequestCookie(key.into()),
        "capture." => Variable::Capture(key.into()),
        _ => Variable::Claim(key.split('.').map(Into::into).collect()),
    };
    Ok((variable, moment))
}

fn header(key: &str) -> Result<HeaderName, BadTemplate> {
    match HeaderName::from_bytes(key.as_bytes()) {
        Ok(name) => Ok(name),
        Err(_) => bad(format!("`{key}` is not a header's name"), "letters, digits and `-`"),
    }
}

fn unknown<T>(name: &str) -> Result<T, BadTemplate> {
    if name.starts_with("env:") || name.starts_with("file:") {
        return bad(
            format!("`${{{name}}}` is answered only when a file is read"),
            "write it with one `$`, in a configuration file",
        );
    }
    // `request.heder.x-a` means a family, and its last part is the user's own.
    let parts: Vec<&str> = name.splitn(3, '.').collect();
    if let [first, second, third] = *parts
        && let Some(family) = nearest(&format!("{first}.{second}."), FAMILIES.iter().map(|(start, _)| *start))
    {
        return bad(format!("there is no value `{name}`"), format!("did you mean `{family}{third}`?"));
    }
    let names = KNOWN.iter().map(|(known, ..)| *known);
    match nearest(name, names.chain(FAMILIES.iter().map(|(start, _)| *start))) {
        Some(near) => bad(format!("there is no value `{name}`"), format!("did you mean `{near}`?")),
        None => {
            bad(format!("there is no value `{name}`"), "such as `request.path` or `request.header.x-name`")
        }
    }
}
