//! Settings that are one text or a list of them.

use schemars::JsonSchema;
use serde::Deserialize;

/// One text, or a list of texts.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_list_of_one() {
        for (written, read) in [("\"a\"", vec!["a"]), ("[\"a\", \"b\"]", vec!["a", "b"]), ("[]", vec![])] {
            let setting: OneOrMany = serde_json::from_str(written).unwrap();
            assert_eq!(setting.into_vec(), read, "{written}");
        }
        assert_eq!(OneOrMany::default().into_vec(), Vec::<String>::new());
    }
}
