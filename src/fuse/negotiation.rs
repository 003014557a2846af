//! What is asked of the kernel when a mount begins: its abilities, and how much it may send at once.

use fuser::{InitFlags, KernelConfig};

use super::convert::LARGEST_REQUEST;

/// Readahead requests in flight, and from how many on the kernel holds back.
const MAX_BACKGROUND: u16 = 128;
const CONGESTION: u16 = 96;

/// Abilities that are used where the kernel has them. FUSE_AUTO_INVAL_DATA is not: it drops pages of files that are being
/// written (vfs/pages.rs).
const WANTED: [InitFlags; 5] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    // No file has set-ID bits or capabilities that a write would clear: the kernel need not look before each write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
];

/// Asks the kernel for abilities and limits; a mount works without any of them.
pub(super) fn ask_for(config: &mut KernelConfig) {
    for flag in WANTED {
        if config.add_capabilities(flag).is_err() {
            log::debug!("the kernel has no {flag:?}");
        }
    }
    let limits = [
        config.set_max_write(LARGEST_REQUEST).is_err(),
        config.set_max_background(MAX_BACKGROUND).is_err(),
        config.set_congestion_threshold(CONGESTION).is_err(),
    ];
    if limits.contains(&true) {
        log::warn!("the kernel refuses our limits; reads will be slower");
    }
}
