//! The limits of one inspection.

/// What one request may cost. What goes beyond is counted, and the caller's policy says what becomes of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Arguments of the query and the body together.
    pub arguments: usize,
    /// Levels of arrays and objects in JSON.
    pub json_depth: usize,
    /// Levels of JSON within the values of arguments that are read as JSON; 0 reads none.
    pub nested_json: usize,
    /// Whether the strings of GraphQL documents (`query` of a request, bodies of `application/graphql`) are read besides.
    pub graphql: bool,
    /// Levels of elements in XML.
    pub xml_depth: usize,
    /// Parts of a multipart body.
    pub parts: usize,
    /// Bytes of one value that are inspected.
    pub value_size: usize,
    /// Bytes of one value that are looked at for SQL and script fragments (`@detectSQLi`, `@detectXSS`), whose cost is not
    /// linear.
    pub injection_bytes: usize,
    /// Bytes that operators may read in all: the sum of the lengths of the values, each as often as it is read.
    pub budget_bytes: u64,
    /// Bytes that transformations and variables may take in all.
    pub arena_bytes: usize,
    /// Variables with names made at run time (`setvar:tx.x_%{…}`).
    pub variables: usize,
    /// Matches that are reported.
    pub matches: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            arguments: 1000,
            json_depth: 64,
            nested_json: 2,
            graphql: true,
            xml_depth: 64,
            parts: 100,
            value_size: 128 << 10,
            injection_bytes: 8 << 10,
            budget_bytes: 64 << 20,
            arena_bytes: 64 << 20,
            variables: 2048,
            matches: 64,
        }
    }
}
