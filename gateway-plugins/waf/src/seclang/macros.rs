//! Texts with `%{…}` in them.

use crate::variable::Variable;

/// Why a text with macros can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MacroError {
    /// The text whose macro has no end.
    #[error("`%{{` in `{0}` is never closed")]
    Unclosed(String),
    /// What the braces contain.
    #[error("the variable in `%{{{0}}}` is not supported")]
    UnknownVariable(String),
    #[error("`%{{TX}}` needs a name, as in `%{{TX.name}}`")]
    TxWithoutName,
}

/// A piece of a text with macros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MacroPiece {
    Text(Vec<u8>),
    /// `%{tx.name}`, in lower case.
    Tx(String),
    /// `%{VARIABLE}` or `%{VARIABLE.member}`: the first value.
    Of(Variable, Option<String>),
}

/// A text with macros.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Template(pub(crate) Vec<MacroPiece>);

impl Template {
    /// The text, where nothing in it depends on the request.
    pub(crate) fn constant(&self) -> Option<&[u8]> {
        match self.0.as_slice() {
            [] => Some(b""),
            [MacroPiece::Text(text)] => Some(text),
            _ => None,
        }
    }
}

/// Reads a text with macros.
pub(crate) fn parse(text: &str) -> Result<Template, MacroError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("%{") {
        if !before.is_empty() {
            pieces.push(MacroPiece::Text(before.as_bytes().to_vec()));
        }
        let Some((name, behind)) = after.split_once('}') else {
            return Err(MacroError::Unclosed(text.to_owned()));
        };
        pieces.push(piece(name)?);
        rest = behind;
    }
    if !rest.is_empty() {
        pieces.push(MacroPiece::Text(rest.as_bytes().to_vec()));
    }
    Ok(Template(pieces))
}

fn piece(name: &str) -> Result<MacroPiece, MacroError> {
    let (variable, member) = match name.split_once(['.', ':']) {
        Some((variable, member)) => (variable, Some(member.to_ascii_lowercase())),
        None => (name, None),
    };
    // What rule sets write in messages alone; they say nothing here.
    if ["rule", "unique_id"].iter().any(|known| variable.eq_ignore_ascii_case(known)) && member.is_some() {
        return Ok(MacroPiece::Text(Vec::new()));
    }
    let known = Variable::named(variable).ok_or_else(|| MacroError::UnknownVariable(name.to_owned()))?;
    match (known, member) {
        (Variable::Tx, Some(member)) => Ok(MacroPiece::Tx(member)),
        (Variable::Tx, None) => Err(MacroError::TxWithoutName),
        (known, member) => Ok(MacroPiece::Of(known, member)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_are_read() {
        let got = parse("a%{tx.Score}b%{REQUEST_HEADERS.Host}%{MATCHED_VAR}").unwrap();
        assert_eq!(
            got.0,
            [
                MacroPiece::Text(b"a".to_vec()),
                MacroPiece::Tx("score".into()),
                MacroPiece::Text(b"b".to_vec()),
                MacroPiece::Of(Variable::Headers, Some("host".into())),
                MacroPiece::Of(Variable::MatchedVar, None),
            ]
        );
        assert_eq!(parse("%{GEO.COUNTRY}"), Err(MacroError::UnknownVariable("GEO.COUNTRY".into())));
        assert_eq!(parse("a%{tx.a"), Err(MacroError::Unclosed("a%{tx.a".into())));
        assert_eq!(parse("%{TX}"), Err(MacroError::TxWithoutName));
        assert_eq!(MacroError::TxWithoutName.to_string(), "`%{TX}` needs a name, as in `%{TX.name}`");
        assert_eq!(parse("100%").unwrap().constant(), Some(&b"100%"[..]));
    }
}
