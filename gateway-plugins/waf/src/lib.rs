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
//!
//! # Where things are
//!
//! - `seclang/`: rule files to a syntax tree with file and line.
//! - `compile.rs`: the tree to rules; what cannot be enforced is a problem. `compile/fold.rs` runs at load what does not depend on the request.
//! - `pattern.rs`: regular expressions as rule sets write them; `pattern/literals.rs` finds bytes that a match must contain. `filter.rs` is
//!   one automaton over all of those: it says which rules a value can match at all.
//! - `transform/`: the `t:` functions. `texts.rs` keeps each distinct value once with its transformations; `cache.rs` keeps that between requests.
//! - `body/`: form, multipart, JSON, XML, protobuf and GraphQL to named values, with limits.
//! - `request.rs`, `values.rs` and `values/intake.rs`: the collections and what goes into them.
//! - `engine/`: phases, chains, targets, macros, `setvar`, `ctl` and the verdict. `pack/`: our own rules, in SecLang.

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
pub use compile::tail::{Exclusion, ExclusionError, ExclusionSpec};
pub use compile::{MAX_RULES, RuleFile, Sources, compile};
pub use engine::{Buffers, Denial, Match, Report, Transaction};
pub use limits::Limits;
pub use pattern::PatternError;
pub use problem::{Problem, RuleLocation, Severity};
pub use request::{RequestHead, ResponseHead};
pub use rules::{Ruleset, Summary};
pub use seclang::IdRange;
pub use seclang::targets::TargetError;
pub use transform::Transform;
