//! The overlay (`zarrfs mount --cow`) behaves as a directory and commits exact changes.
//!
//! Nothing is lost on the way from a program's write to the store.

mod attributes;
mod commits;
mod conflicts;
mod encodings;
mod encodings_of_drafts;
mod fixture;
mod full;
mod hooked;
mod late_openers;
mod left_out;
mod listed_renames;
mod lost_answers;
mod mounted;
mod other_user;
mod parallel_puts;
mod random;
mod reference;
mod replaced_meanwhile;
mod same_bytes;
mod steps;
mod unstorable;
mod uppers;
