//! The program: passes its arguments to `cli` and exits with the status that comes back.

use std::process::ExitCode;

use zarrfs::sync::arena::Arena;

#[global_allocator]
static ALLOCATOR: Arena = Arena;

fn main() -> ExitCode {
    zarrfs::sync::allocator::configure();
    zarrfs::sync::descriptors::raise_limit();
    zarrfs::cli::run(zarrfs::cli::arguments())
}
