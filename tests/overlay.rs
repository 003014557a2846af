//! The overlay (`zarrfs mount --cow`): that it is a directory to programs, that the store gets exactly what was
//! changed, and that nothing is lost on the way.

mod common;

#[path = "overlay/commits.rs"]
mod commits;
#[path = "overlay/conflicts.rs"]
mod conflicts;
#[path = "overlay/full.rs"]
mod full;
#[path = "overlay/hooked.rs"]
mod hooked;
#[path = "overlay/mounted.rs"]
mod mounted;
#[path = "overlay/plain.rs"]
mod plain;
#[path = "overlay/random.rs"]
mod random;
#[path = "overlay/stage.rs"]
mod stage;
#[path = "overlay/steps.rs"]
mod steps;
#[path = "overlay/uppers.rs"]
mod uppers;
