//! Tests `zarrfs check`: it finds each kind of damage and accepts valid stores.
//!
//! The option `--fix`, which rebuilds consolidated metadata, is tested as well.

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
mod lenient_decodes;
mod local;
mod long_copies;
mod pipeline;
mod requests;
mod sections;
mod stores;
mod tables;
mod tolerated;
mod wordings;
