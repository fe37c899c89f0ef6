//! A load generator for ten protocols: plan × pace × driver × measure, with verdicts that refuse bad rows.

pub mod backend;
pub mod bulk;
pub mod cli;
pub mod command;
pub mod driver;
pub mod engine;
pub mod fleet;
pub mod load_args;
pub mod measure;
pub mod pace;
pub mod peers;
pub mod plan;
pub mod process;
pub mod replay;
pub mod report;
pub mod scale;
pub mod text_files;
pub mod tls;
