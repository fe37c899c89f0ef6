//! What an input may take of memory: sixteen bytes for each of its own, and a MiB.

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const BYTES_A_BYTE: usize = 16;
const BYTES_BESIDES: usize = 1 << 20;

/// Runs a target, which may take no more than that.
pub fn bounded(data: &[u8], run: impl FnOnce(&[u8])) {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    run(data);
    let taken = ALLOCATOR.peak_usage().saturating_sub(before);
    let most = BYTES_A_BYTE * data.len() + BYTES_BESIDES;
    assert!(taken <= most, "{} bytes take {taken} bytes", data.len());
}
