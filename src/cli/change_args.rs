//! Arguments of the commands on the changes of a mount or an upper folder.
//!
//! The comments of fields are the help texts and the manual page.

use std::path::PathBuf;

use clap::Args;

use super::examples;
use super::remote::RemoteArgs;

/// Which changes a command is about.
#[derive(Args, Debug)]
pub struct PlaceArgs {
    /// The mountpoint, or an upper folder
    pub place: PathBuf,
    /// The store, where the upper folder does not say all of its URL, or where it has been moved to: it must have the keys
    /// that were changed in the folder, which belongs to it from the next commit on
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// How a store on the network is reached, if it is not mounted
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// Arguments of `zarrfs status`.
#[derive(Args, Debug)]
#[command(after_help = examples::STATUS)]
pub struct StatusArgs {
    /// Which changes
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Print JSON
    #[arg(long, help_heading = None)]
    pub json: bool,
}

/// Arguments of `zarrfs diff`.
#[derive(Args, Debug)]
#[command(after_help = examples::DIFF)]
pub struct DiffArgs {
    /// Which changes
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Another store, with which PLACE is compared, then a store as well: each a path, a URL or a path in a mount
    #[arg(value_name = "OTHER", conflicts_with = "store", help_heading = None)]
    pub other: Option<String>,
    /// Compare nodes, shapes and elements of two stores alone: attributes, names of dimensions, fill values, chunks, codecs
    /// and sizes of data types do not count
    #[arg(long, requires = "other", help_heading = None)]
    pub values: bool,
    /// Tell nodes, attributes and regions of arrays instead of keys
    #[arg(long, help_heading = None)]
    pub arrays: bool,
    /// Print JSON
    #[arg(long, help_heading = None)]
    pub json: bool,
}

/// Arguments of `zarrfs commit`.
#[derive(Args, Debug)]
#[command(after_help = examples::COMMIT)]
pub struct CommitArgs {
    /// Which changes
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Only say what would be done, and what is in conflict
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    /// Overwrite what others changed meanwhile
    #[arg(long, help_heading = None)]
    pub force: bool,
    /// Write the store with all changes to this new one instead, a folder or a URL; changes stay where they are
    #[arg(long, value_name = "URL", help_heading = None, conflicts_with_all = ["dry_run", "force"])]
    pub to: Option<String>,
    /// Print JSON
    #[arg(long, help_heading = None)]
    pub json: bool,
}

/// Arguments of `zarrfs discard`.
#[derive(Args, Debug)]
#[command(after_help = examples::DISCARD)]
pub struct DiscardArgs {
    /// Which changes
    #[command(flatten)]
    pub place: PlaceArgs,
    /// What was changed at this path in the store and below
    #[arg(help_heading = None)]
    pub path: Option<String>,
    /// Discard all changes, without a question
    #[arg(long, help_heading = None, conflicts_with = "path")]
    pub all: bool,
}
