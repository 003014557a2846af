//! The overlay (`zarrfs mount --cow`): that it is a directory to programs, that the store gets exactly what was
//! changed, and that nothing is lost on the way.

#[path = "../common/mod.rs"]
mod common;

mod commits;
mod conflicts;
mod full;
mod hooked;
mod mounted;
mod plain;
mod random;
mod stage;
mod steps;
mod uppers;
