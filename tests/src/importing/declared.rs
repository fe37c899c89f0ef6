//! The types that importers write: the gateway knows each of their fields.

use ferrum_edge::core::config::file::File;
use ferrum_edge::import;
use serde_json::Value;

/// A place within a schema.
#[derive(Clone, Copy)]
struct Place<'s> {
    whole: &'s Value,
    at: &'s Value,
}

impl<'s> Place<'s> {
    /// What it allows, and what that refers to, each by itself.
    fn choices(self) -> Vec<&'s Value> {
        let mut found = vec![self.at];
        let mut next = 0;
        while let Some(one) = found.get(next).copied() {
            next += 1;
            let named = one["$ref"].as_str().and_then(|name| self.whole.pointer(name.strip_prefix('#')?));
            let choices = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| one[*key].as_array()).flatten();
            // A type that contains itself comes back.
            for more in named.into_iter().chain(choices) {
                if !found.iter().any(|known| std::ptr::eq(*known, more)) {
                    found.push(more);
                }
            }
        }
        found
    }

    /// What is in it, where it is a list or has names of the user's as keys.
    fn within(self) -> Self {
        let inner = |one: &'s Value| {
            ["items", "additionalProperties"].iter().map(|key| &one[*key]).find(|it| it.is_object())
        };
        self.choices().into_iter().find_map(inner).map_or(self, |at| Self { at, ..self })
    }

    fn field(self, name: &str) -> Option<Self> {
        let field = |one: &'s Value| one["properties"].get(name);
        self.choices().into_iter().find_map(field).map(|at| Self { at, ..self })
    }
}

#[test]
fn the_gateway_knows_every_field() {
    let file = File::schema().as_value();
    let plugins: Vec<(&str, Value)> = ferrum_edge::plugins()
        .entries()
        .iter()
        .map(|entry| (entry.name, Value::from((entry.schema)())))
        .collect();
    let mut unknown = Vec::new();
    // The schema allows any type of credential; one that there is not is refused when an imported file is loaded.
    let declared = import::DECLARED.concat();
    for (path, fields) in declared.into_iter().filter(|(path, _)| !path.starts_with("consumers/credentials"))
    {
        let mut keys = path.split('/');
        let start = keys.next().unwrap();
        let plugin = plugins.iter().find(|(name, _)| *name == start).map(|(_, schema)| schema);
        let whole = Place { whole: plugin.unwrap_or(file), at: plugin.unwrap_or(file) };
        let first = if plugin.is_some() { Some(whole) } else { whole.field(start).map(Place::within) };
        let place = keys.fold(first, |place, key| Some(place?.field(key)?.within()));
        let Some(place) = place else {
            unknown.push(path.to_owned());
            continue;
        };
        let misses = fields.iter().filter(|field| place.field(field).is_none());
        unknown.extend(misses.map(|field| format!("{path}: {field}")));
    }
    assert!(unknown.is_empty(), "no such settings: {unknown:#?}");
}
