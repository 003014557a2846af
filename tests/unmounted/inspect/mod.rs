//! Tests the commands that read stores without a mount, by their whole output.
//!
//! The stores are samples, the corpus, and hostile or broken stores. The output is compared with the files in
//! `golden/`, which `BLESS=1` rewrites.

mod corpus;
mod differences;
mod elements;
mod hostile;
mod long_trees;
mod maps;
mod places;
mod profiles;
mod program;
mod proxies;
mod remote;
mod samples;
