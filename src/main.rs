//! Passes the arguments to `cli`, and returns the exit status.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Settings of the allocator jemalloc(3): freed memory, also of large blocks, returns to the kernel after a second. All
/// threads share one arena, since chunks are allocated by one thread and freed by another.
#[expect(unsafe_code, reason = "jemalloc looks for its settings by this name")]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static SETTINGS: &[u8; 68] =
    b"narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0,oversize_threshold:0\0";

fn main() -> ExitCode {
    zarrfs_store::sync::allocator::configure();
    zarrfs_store::sync::file_limits::raise_descriptor_limit();
    zarrfs_store::sync::file_limits::survive_size_limit();
    zarrfs::cli::run(zarrfs::cli::arguments())
}
