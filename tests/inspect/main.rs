//! Commands that look at stores without mounting them: their whole output, on samples, on the corpus, and on stores
//! that are hostile or broken.
//!
//! `BLESS=1` writes the files in `golden/`, with which the output is compared.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/scripted.rs"]
mod scripted;

mod corpus;
mod differences;
mod elements;
mod hostile;
mod long_trees;
mod maps;
mod places;
mod profiles;
mod program;
mod remote;
mod samples;
