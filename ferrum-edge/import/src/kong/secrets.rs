//! Secrets that a declarative file only names: variables of decK, and references to Kong's vaults.

use crate::draft::Import;

/// The value of a secret; a name of a variable becomes `${env:NAME}`, which the gateway reads at load. `None` where it is kept where the
/// gateway can't look: whoever wrote the reference itself as a key would be let in by it otherwise.
pub(super) fn secret(out: &mut Import, place: &str, written: &str) -> Option<String> {
    let text = written.trim();
    let variable = deck_variable(text).or_else(|| env_vault(text)).or_else(|| shell_variable(text));
    if let Some(name) = variable {
        let why = format!("the gateway reads it from the variable {name} when it loads the file");
        out.partial(out.here, place, why, "set the variable");
        return Some(format!("${{env:{name}}}"));
    }
    if text.starts_with("{vault://") || text.starts_with("${{") {
        out.not_converted_here(
            place,
            "this secret lies in a vault; write it as `${env:NAME}` or `${file:PATH}`",
        );
        return None;
    }
    Some(written.to_owned())
}

/// `${{ env "DECK_NAME" }}`
fn deck_variable(text: &str) -> Option<String> {
    let inner = text.strip_prefix("${{")?.strip_suffix("}}")?.trim();
    variable_name(inner.strip_prefix("env")?.trim().trim_matches('"'))
}

/// `{vault://env/my-secret}`, which is `MY_SECRET`.
fn env_vault(text: &str) -> Option<String> {
    let name = text.strip_prefix("{vault://env/")?.strip_suffix('}')?;
    variable_name(&name.replace('-', "_").to_ascii_uppercase())
}

/// `$NAME` and `${NAME}`, as scripts fill them in.
fn shell_variable(text: &str) -> Option<String> {
    let name = text.strip_prefix('$')?;
    let name = name.strip_prefix('{').map_or(Some(name), |inner| inner.strip_suffix('}'))?;
    variable_name(name).filter(|name| name.bytes().all(|c| !c.is_ascii_lowercase()))
}

fn variable_name(name: &str) -> Option<String> {
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    is_name.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_not_secrets() {
        for (written, expected) in [
            ("plain", Some("plain")),
            ("$SECRET", Some("${env:SECRET}")),
            ("${SECRET_2}", Some("${env:SECRET_2}")),
            ("${{ env \"DECK_KEY\" }}", Some("${env:DECK_KEY}")),
            ("{vault://env/my-key}", Some("${env:MY_KEY}")),
            ("{vault://hcv/my/key}", None),
            ("${{ readFile \"x\" }}", None),
            // A password may begin with a dollar sign.
            ("$ecret", Some("$ecret")),
            ("$2y$10$abcdef", Some("$2y$10$abcdef")),
            ("${env:OWN}", Some("${env:OWN}")),
        ] {
            let mut out = Import::default();
            assert_eq!(secret(&mut out, "key", written).as_deref(), expected, "{written}");
        }
    }
}
