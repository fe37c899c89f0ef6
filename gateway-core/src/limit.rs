//! Limits: how much, how often, how many at a time.
//!
//! Rules and state are apart where one rule applies to many keys, so that a table of a million keys holds only
//! state. Everything here is lock-free and takes the time as an argument.

pub mod backoff;
pub mod bucket;
pub mod budget;
pub mod busyness;
pub mod byte_quota;
pub mod byte_rate;
pub mod collected;
pub mod concurrency;
pub mod epoch;
pub mod hedging;
pub mod meter;
pub mod overload;
pub mod window;

pub use backoff::pause;
pub use bucket::{Bucket, BucketState};
pub use budget::RetryBudget;
pub use busyness::{Busyness, Steps};
pub use byte_quota::ByteQuota;
pub use byte_rate::ByteRate;
pub use collected::CollectedBodies;
pub use concurrency::{Concurrency, Permit};
pub use epoch::Epoch;
pub use meter::{Meter, Meters};
pub use overload::Overload;
pub use window::{Window, WindowState};
