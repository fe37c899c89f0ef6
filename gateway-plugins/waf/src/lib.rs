//! The web application firewall of the gateway: compiles rules in SecLang, such as the OWASP Core Rule Set, and runs
//! requests and responses through them.
//!
//! ```
//! use std::sync::Arc;
//! use gateway_waf::{Buffers, Limits, RequestHead, RuleFile, Sources, Transaction, compile};
//!
//! let text = r#"SecRule ARGS "@rx (?i)union\s+select" "id:1,phase:2,deny,status:403,t:urlDecodeUni""#;
//! let file = RuleFile { name: "my.conf".into(), text: text.into(), setup: false };
//! let sources = Sources { files: vec![file], ..Sources::default() };
//! let (ruleset, _notes) = compile(&sources).expect("rules");
//! let mut transaction = Transaction::new(Arc::new(ruleset), Limits::default(), Buffers::default());
//! transaction.request_head(&RequestHead {
//!     method: b"GET",
//!     target: b"/?q=1+UNION+SELECT+2",
//!     version: "HTTP/1.1",
//!     headers: &[(b"host", b"example.com")],
//!     client: [203, 0, 113, 7].into(),
//!     unique_id: b"",
//! });
//! transaction.request_body(b"");
//! assert_eq!(transaction.denied().map(|denial| denial.rule), Some(1));
//! ```
//!
//! A library of functions: it opens nothing, starts nothing and keeps nothing but what its caller holds. What a request can
//! cost is bounded by [`Limits`].

mod bits;
mod body;
mod bytes;
mod cache;
mod compile;
mod engine;
mod filter;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod limits;
mod operator;
pub mod pack;
mod pattern;
mod problem;
mod request;
mod rules;
mod seclang;
mod texts;
mod transform;
mod values;
mod variable;

pub use body::Processor;
pub use compile::tail::{Exclusion, ExclusionSpec};
pub use compile::{MAX_RULES, RuleFile, Sources, compile};
pub use engine::{Buffers, Denial, Match, Report, Transaction};
pub use limits::Limits;
pub use problem::{Problem, RuleLocation, Severity};
pub use request::{RequestHead, ResponseHead};
pub use rules::{Ruleset, Summary};
pub use seclang::range as id_range;
pub use transform::Transform;
