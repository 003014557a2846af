//! Negotiates the mount with the kernel: capabilities and request limits.

use fuser::{InitFlags, KernelConfig};

use super::convert::LARGEST_REQUEST;

/// Maximum number of read-ahead requests in flight, and the number at which the kernel throttles.
const MAX_BACKGROUND: u16 = 128;
const CONGESTION: u16 = 96;

/// Capabilities that are used if the kernel has them. Not FUSE_AUTO_INVAL_DATA: it drops pages of files that are open
/// for writing (vfs/pages.rs).
const WANTED: [InitFlags; 5] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    // No file has set-ID bits or capabilities that a write must clear: the kernel need not check before each write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
];

/// Requests capabilities and limits; a mount works without any of them.
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
