//! What is measured: latencies and answers, CPU and memory of processes, the machine, and whether to believe it all.

pub mod judge;
pub mod machine;
pub mod process;
pub mod recorder;
pub mod time;

pub use process::{Role, Watched};
pub use recorder::{Recorder, Tally};
