//! Everything at once: commits, writers, readers, other programs and kills, checked as histories.

mod commit_faults;
mod fixture;
mod gate;
mod history;
mod register;
mod value;
mod waiting;
