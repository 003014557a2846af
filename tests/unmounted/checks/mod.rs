//! Tests `zarrfs check`: it finds each kind of damage and accepts healthy stores.
//!
//! Also tests that `--fix` rebuilds consolidated metadata.

mod archives;
mod catalogue;
mod command;
mod conventions;
mod corpus;
mod datasets;
mod fix;
mod fixture;
mod foreign;
mod hostile;
mod local;
mod long_copies;
mod passed_over;
mod pipeline;
mod requests;
mod sections;
mod stores;
mod tables;
mod tolerated;
mod wordings;
