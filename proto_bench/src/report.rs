//! Results: the document that is kept as JSON, and what is made of it for terminals, Markdown and the web.

pub mod html;
pub mod judge;
pub mod markdown;
pub mod marks;
pub mod model;
pub mod numbers;
pub mod published;
pub mod summary;
pub mod table;
pub mod terminal;

pub use model::{Document, ReportKind, Round, Row};
