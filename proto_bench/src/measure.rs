//! What is measured: latencies and answers, CPU and memory of processes, and the machine.

pub mod counters;
pub mod live;
pub mod machine;
pub mod process;
pub mod recorder;
pub mod time;

pub use process::{Role, Watched};
pub use recorder::{Recorder, Tally};
