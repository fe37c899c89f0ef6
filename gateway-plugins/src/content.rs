//! Answers that the gateway gives in the place of a target: files, redirects, error pages, mocks, faults.

mod content_source;
pub(crate) mod error_pages;
pub(crate) mod fault_injection;
pub(crate) mod internal_redirect;
mod page;
pub(crate) mod redirect;
pub(crate) mod request_termination;
pub(crate) mod response_mock;
pub(crate) mod static_files;
pub(crate) mod upload;
