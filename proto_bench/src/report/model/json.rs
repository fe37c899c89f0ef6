//! Result files are read by people and kept in repositories: one line a round, numbers to three decimals.

use serde_json::Value;

/// Levels that are indented; what lies deeper (a round's innards) stays on one line.
const INDENTED: usize = 4;

/// The document's JSON.
pub(super) fn render(mut value: Value) -> String {
    round(&mut value);
    let mut out = String::new();
    write(&mut out, &value, 0);
    out.push('\n');
    out
}

fn round(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        Value::Number(number) if number.is_f64() => {
            if let Some(exact) = number.as_f64() {
                *value = ((exact * 1e3).round() / 1e3).into();
            }
        }
        _ => {}
    }
}

fn write(out: &mut String, value: &Value, depth: usize) {
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.push_str(&" ".repeat(depth));
    };
    match value {
        Value::Array(items) if depth < INDENTED && items.iter().any(|item| item.is_object()) => {
            out.push('[');
            for (number, item) in items.iter().enumerate() {
                out.push_str(if number == 0 { "" } else { "," });
                line(out, depth + 1);
                write(out, item, depth + 1);
            }
            line(out, depth);
            out.push(']');
        }
        Value::Object(fields) if depth < INDENTED && !fields.is_empty() => {
            out.push('{');
            for (number, (name, field)) in fields.iter().enumerate() {
                out.push_str(if number == 0 { "" } else { "," });
                line(out, depth + 1);
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push_str(": ");
                write(out, field, depth + 1);
            }
            line(out, depth);
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}
