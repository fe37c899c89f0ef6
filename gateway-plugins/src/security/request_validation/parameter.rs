//! The parameters of an OpenAPI document: in paths, queries, headers and cookies.

use gateway_core::http::exchange::Exchange;
use gateway_core::request_values;
use http::HeaderName;
use serde_json::Value;

use super::schema::Schema;
use super::values::{self, ValueShape, ValuesLeft};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterLocation {
    Path,
    Query,
    Header,
    Cookie,
}

/// Why a parameter can't be checked.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParameterError {
    #[error("`in` is not path, query, header or cookie")]
    Location,
    #[error("`name` is missing or malformed")]
    Name,
    #[error("the style `{0}` can't be checked")]
    Style(String),
    #[error(
        "objects in parameters can be checked as `deepObject` in queries or as `content` of application/json, and \
         nothing else as `deepObject`"
    )]
    ObjectStyle,
}

pub(super) struct Parameter {
    place: ParameterLocation,
    name: String,
    required: bool,
    /// An empty text counts as given, whatever the schema says.
    allows_empty: bool,
    shape: ValueShape,
    /// How a list is written; `None` repeats the name.
    separator: Option<char>,
    /// It is an object, whose properties are written `name[property]`, and are these.
    deep: Option<Vec<(String, ValueShape)>>,
    /// The text is JSON.
    is_json: bool,
    schema: Option<Schema>,
}

/// What the names of a path stand for.
pub(super) type PathValues<'n> = &'n [(&'n str, String)];
/// The parameters of a query.
pub(super) type Pairs<'q> = &'q [(String, String)];

impl Parameter {
    /// Reads a parameter of the document `root`; `None` is one that counts for nothing. `compile` reports what is wrong with a schema.
    ///
    /// # Errors
    /// What can't be checked.
    pub(super) fn read(
        written: &Value,
        root: &Value,
        compile: impl FnOnce(&Value) -> Option<Schema>,
    ) -> Result<Option<Self>, ParameterError> {
        let text = |key| written.get(key).and_then(Value::as_str);
        let place = match text("in") {
            Some("path") => ParameterLocation::Path,
            Some("query") => ParameterLocation::Query,
            Some("header") => ParameterLocation::Header,
            Some("cookie") => ParameterLocation::Cookie,
            _ => {
                return Err(ParameterError::Location);
            }
        };
        let name = text("name").unwrap_or_default().to_owned();
        let is_header = place == ParameterLocation::Header;
        if name.is_empty() || (is_header && HeaderName::from_bytes(name.as_bytes()).is_err()) {
            return Err(ParameterError::Name);
        }
        // These are not parameters (OpenAPI 3.1 §4.8.12.1).
        if is_header
            && ["accept", "content-type", "authorization"].contains(&name.to_ascii_lowercase().as_str())
        {
            return Ok(None);
        }
        let content = written.pointer("/content/application~1json/schema");
        let schema = content.or_else(|| written.get("schema"));
        let style = text("style").unwrap_or(
            if matches!(place, ParameterLocation::Path | ParameterLocation::Header) {
                "simple"
            } else {
                "form"
            },
        );
        let explode = written.get("explode").and_then(Value::as_bool).unwrap_or(style == "form");
        let separator = match style {
            "simple" => Some(','),
            "form" if explode && place == ParameterLocation::Query => None,
            "form" => Some(','),
            "spaceDelimited" => Some(' '),
            "pipeDelimited" => Some('|'),
            "deepObject" if place == ParameterLocation::Query => None,
            _ => {
                return Err(ParameterError::Style(style.to_owned()));
            }
        };
        let shape = schema.map_or_else(ValueShape::text, |schema| ValueShape::of(root, schema));
        let is_object =
            schema.and_then(|schema| values::resolved(root, schema)?.get("type")) == Some(&"object".into());
        let deep = (style == "deepObject" && content.is_none())
            .then(|| schema.map_or_else(Vec::new, |schema| values::properties(root, schema)));
        if is_object != deep.is_some() && content.is_none() {
            return Err(ParameterError::ObjectStyle);
        }
        let schema = schema.and_then(compile);
        let required =
            place == ParameterLocation::Path || written.get("required") == Some(&Value::Bool(true));
        let allows_empty =
            place == ParameterLocation::Query && written.get("allowEmptyValue") == Some(&Value::Bool(true));
        let is_json = content.is_some();
        Ok(Some(Self { place, name, required, allows_empty, shape, separator, deep, is_json, schema }))
    }

    /// Whether a parameter of a query is this one, or a property of it.
    pub(super) fn is_query(&self, name: &str) -> bool {
        self.place == ParameterLocation::Query
            && if self.deep.is_some() { self.property(name).is_some() } else { self.name == name }
    }

    /// The property that a parameter of a query names.
    fn property<'n>(&self, name: &'n str) -> Option<&'n str> {
        name.strip_prefix(&*self.name)?.strip_prefix('[')?.strip_suffix(']')
    }

    /// An object that is made of several parameters of a query.
    fn check_deep(
        &self,
        what: &str,
        properties: &[(String, ValueShape)],
        query: Pairs<'_>,
        faults: &mut Vec<String>,
    ) {
        let own = |(name, text): &(String, String)| Some((self.property(name)?.to_owned(), text.clone()));
        let pairs: Vec<(String, String)> = query.iter().filter_map(own).collect();
        match (pairs.is_empty(), &self.schema) {
            (true, _) if self.required => faults.push(format!("{what}: it is required")),
            (true, _) | (_, None) => {}
            (false, Some(schema)) => match values::object(pairs, properties) {
                Ok(object) => schema.check_made(what, &object, faults),
                Err(why) => faults.push(format!("{what}: {why}")),
            },
        }
    }

    pub(super) fn check(
        &self,
        exchange: &Exchange,
        names: PathValues<'_>,
        query: Pairs<'_>,
        faults: &mut Vec<String>,
    ) {
        let headers = &exchange.request.headers;
        let texts: Vec<String> = match self.place {
            ParameterLocation::Path => {
                names.iter().filter(|(name, _)| *name == self.name).map(|(_, it)| it.clone()).collect()
            }
            ParameterLocation::Query => {
                query.iter().filter(|(name, _)| *name == self.name).map(|(_, it)| it.clone()).collect()
            }
            ParameterLocation::Header => HeaderName::from_bytes(self.name.as_bytes())
                .ok()
                .and_then(|name| {
                    request_values::header(headers, &name).map(|it| String::from_utf8_lossy(&it).into_owned())
                })
                .into_iter()
                .collect(),
            ParameterLocation::Cookie => {
                let all = request_values::cookies(headers, &self.name);
                all.map(|it| String::from_utf8_lossy(it).into_owned()).collect()
            }
        };
        let place = match self.place {
            ParameterLocation::Path => "path",
            ParameterLocation::Query => "query",
            ParameterLocation::Header => "header",
            ParameterLocation::Cookie => "cookie",
        };
        let what = format!("{place} `{}`", self.name);
        if let Some(properties) = &self.deep {
            return self.check_deep(&what, properties, query, faults);
        }
        if texts.is_empty() {
            if self.required {
                faults.push(format!("{what}: it is required"));
            }
            return;
        }
        // Of two cookies of one name, some targets take the first and some the last.
        if self.place == ParameterLocation::Cookie && texts.len() > 1 {
            return faults.push(format!("{what}: it is given more than once"));
        }
        if self.allows_empty && texts.iter().all(String::is_empty) {
            return;
        }
        let Some(schema) = &self.schema else { return };
        let mut left = ValuesLeft::default();
        let value = match (&texts[..], self.separator) {
            ([text], _) if self.is_json => match left.json(text) {
                Some(value) => value,
                None => return faults.push(format!("{what}: it is not JSON")),
            },
            ([text], Some(separator)) => self.shape.read(text, separator, &mut left),
            _ => match self.shape.read_all(&texts, &mut left) {
                Some(value) => value,
                None => return faults.push(format!("{what}: it is given more than once")),
            },
        };
        schema.check_made(&what, &value, faults);
    }
}
