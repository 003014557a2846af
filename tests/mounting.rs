//! Real mounts of the kernel: made, refused, used by others, and unmounted in every way there is.
//!
//! Needs root and /dev/fuse. What only a person would see (exit statuses, one line on stderr) is tested here
//! as well.

#[path = "mounting/callers.rs"]
mod callers;
#[path = "mounting/ending.rs"]
mod ending;
#[path = "mounting/refusals.rs"]
mod refusals;
#[path = "mounting/served.rs"]
mod served;
#[path = "mounting/stage.rs"]
mod stage;
