//! Which statuses a setting means: `401` or `4xx`.

use gateway_core::config::problem::Problems;

/// Ranges of statuses, both ends included.
#[derive(Debug, Default)]
pub struct Statuses(Box<[(u16, u16)]>);

impl Statuses {
    /// Reads a list; what is wrong with it goes to `problems`, under the name of the setting.
    pub fn read(setting: &str, texts: &[String], problems: &mut Problems) -> Self {
        let mut ranges = Vec::with_capacity(texts.len());
        for (n, text) in texts.iter().enumerate() {
            match range(text) {
                Some(range) => ranges.push(range),
                None => {
                    problems
                        .add(format!("config.{setting}[{n}]"), format!("`{text}` is not a status"))
                        .remedy = Some("write `401` or `4xx`".into());
                }
            }
        }
        Self(ranges.into())
    }

    /// Whether none is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is one of them.
    pub fn has(&self, status: u16) -> bool {
        self.0.iter().any(|(from, to)| (*from..=*to).contains(&status))
    }
}

fn range(text: &str) -> Option<(u16, u16)> {
    if let Some(class) = text.strip_suffix("xx") {
        let class: u16 = class.parse().ok().filter(|class| (1..=5).contains(class))?;
        return Some((class * 100, class * 100 + 99));
    }
    text.parse().ok().filter(|status| (100..=599).contains(status)).map(|status| (status, status))
}
