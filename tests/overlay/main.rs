//! The overlay (`zarrfs mount --cow`): that it is a directory to programs, that the store gets exactly what was
//! changed, and that nothing is lost on the way.

#[path = "../common/mod.rs"]
mod common;

mod commits;
mod conflicts;
mod fixture;
mod full;
mod hooked;
mod kept_meanwhile;
mod late_openers;
mod left_out;
mod listed_renames;
mod lost_answers;
mod mounted;
mod random;
mod reference;
mod steps;
mod uppers;
