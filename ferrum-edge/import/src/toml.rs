//! TOML as the tree that YAML and JSON become. The library bounds how deep tables and lists may be in one another.

use toml::de::{DeTable, DeValue};

use crate::error::Failure;
use crate::report::At;
use crate::tree::{Node, NodeValue};

/// Reads a text.
pub(crate) fn read(name: &str, file: u16, text: &str) -> Result<Node, Failure> {
    let lines = Lines { file, starts: text.match_indices('\n').map(|(at, _)| at + 1).collect() };
    match DeTable::parse(text) {
        Ok(table) => Ok(lines.table(table.get_ref(), At { file, line: 1, column: 1 })),
        Err(error) => {
            let line = error.span().map_or(0, |span| lines.at(span.start).line);
            Err(Failure::new(name, line, format!("this is not TOML: {}", error.message())))
        }
    }
}

/// Where lines begin.
struct Lines {
    file: u16,
    starts: Vec<usize>,
}

impl Lines {
    fn at(&self, offset: usize) -> At {
        let before = self.starts.partition_point(|start| *start <= offset);
        let start = before.checked_sub(1).and_then(|n| self.starts.get(n)).copied().unwrap_or(0);
        let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        At { file: self.file, line: short(before + 1), column: short(offset - start + 1) }
    }

    fn table(&self, table: &DeTable<'_>, at: At) -> Node {
        let entries = table.iter().map(|(key, value)| {
            // A table begins where its name is, for readers.
            let at = self.at(key.span().start);
            (key.get_ref().to_string(), self.value(value.get_ref(), at))
        });
        Node::new(at, NodeValue::Map(entries.collect()))
    }

    fn value(&self, value: &DeValue<'_>, at: At) -> Node {
        let kind = match value {
            DeValue::String(text) => NodeValue::Text(text.to_string()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => NodeValue::Int(number),
                Err(_) => NodeValue::Text(number.to_string()),
            },
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => NodeValue::Float(number),
                Err(_) => NodeValue::Text(number.to_string()),
            },
            DeValue::Boolean(value) => NodeValue::Bool(*value),
            DeValue::Datetime(date) => NodeValue::Text(date.to_string()),
            DeValue::Array(items) => {
                let items = items.iter().map(|item| self.value(item.get_ref(), self.at(item.span().start)));
                NodeValue::List(items.collect())
            }
            DeValue::Table(table) => return self.table(table, at),
        };
        Node::new(at, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_know_their_lines() {
        let text = "a = 1\n[b.c]\nd = [\"x\", 0x10]\n\n[[e]]\nf = true\n[[e]]\nf = 1.5\n";
        let node = read("f.toml", 0, text).expect("a document");
        let d = node.path(&["b", "c", "d"]).expect("it is there");
        assert_eq!((d.at.line, d.items()[0].str(), d.items()[1].int()), (3, Some("x"), Some(16)));
        assert_eq!(node.path(&["b", "c"]).expect("a table").at.line, 2);
        let e: Vec<(u32, Option<String>)> = node
            .each("e")
            .iter()
            .map(|it| (it.get("f").map_or(0, |f| f.at.line), it.get("f").and_then(Node::plain)))
            .collect();
        assert_eq!(e, [(6, Some("true".to_owned())), (8, Some("1.5".to_owned()))]);
    }

    #[test]
    fn hostile_texts_are_refused() {
        assert!(read("f", 0, &format!("a = {}", "[".repeat(10_000))).is_err());
        assert!(read("f", 0, "a = 1\na = 2\n").unwrap_err().to_string().starts_with("f:2:"));
        assert!(read("f", 0, "a = \n").is_err());
    }
}
