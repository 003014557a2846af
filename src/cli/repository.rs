//! Options of Icechunk repositories and of stores with virtual chunks.

use clap::{ArgAction, Args};

use zarr_format::error::{Error, Result};
use zarrfs_store::{Revision, VirtualPrefix, at_revision, split_revision};

/// The heading of options of Icechunk repositories and reference files.
const HEADING: &str = "Icechunk and kerchunk";

/// Which version of a repository is read, and which objects outside it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = HEADING)]
pub struct RepositoryArgs {
    /// Branch of an Icechunk repository [default: main]
    ///
    /// The same as ?branch=NAME after the path or URL.
    #[arg(long, value_name = "NAME", hide_short_help = true, conflicts_with_all = ["tag", "snapshot"])]
    pub branch: Option<String>,
    /// Tag of an Icechunk repository
    ///
    /// The same as ?tag=NAME after the path or URL.
    #[arg(
        long,
        value_name = "NAME",
        hide_short_help = true,
        conflicts_with = "snapshot"
    )]
    pub tag: Option<String>,
    /// Snapshot of an Icechunk repository
    ///
    /// The same as ?snapshot=ID after the path or URL.
    #[arg(long, value_name = "ID", hide_short_help = true)]
    pub snapshot: Option<String>,
    /// Which objects outside the repository are read
    #[command(flatten)]
    pub outside: VirtualChunkArgs,
}

/// Which objects outside a repository are read.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = HEADING)]
pub struct VirtualChunkArgs {
    /// Read chunks in files below this URL or directory; repeatable
    ///
    /// An Icechunk repository or a kerchunk reference file names files elsewhere. zarrfs reads them only below the
    /// prefixes that you give. Options for a prefix follow it after commas: anon, netrc, endpoint=URL, region=NAME,
    /// header=LINE, bearer_token_file=FILE, or a backend option such as access_key_id=.... Credentials of the store
    /// itself are not sent there.
    #[arg(long, value_name = "PREFIX", value_parser = prefix, action = ArgAction::Append, hide_short_help = true)]
    pub virtual_chunks: Vec<VirtualPrefix>,
}

impl RepositoryArgs {
    /// Returns the path or URL of the store with the chosen revision; `Invalid` if it names one already.
    pub(super) fn location(&self, typed: &str) -> Result<String> {
        let chosen = self.branch.clone().map(Revision::Branch);
        let chosen = chosen.or_else(|| self.tag.clone().map(Revision::Tag));
        let chosen = chosen.or_else(|| self.snapshot.clone().map(Revision::Snapshot));
        match chosen {
            None => Ok(typed.to_string()),
            Some(revision) => at_chosen(typed, revision),
        }
    }
}

/// Returns a location at a revision; `Invalid` if it names one already.
pub(super) fn at_chosen(location: &str, revision: Revision) -> Result<String> {
    let (place, named) = split_revision(location)?;
    if let Some(named) = named {
        let why = format!("names {named} already; drop that, or the option");
        return Err(Error::invalid(location, why));
    }
    Ok(at_revision(place, Some(revision.checked()?)))
}

/// Parses a prefix and its options.
fn prefix(text: &str) -> std::result::Result<VirtualPrefix, String> {
    VirtualPrefix::parse(text).map_err(|error| error.to_string())
}
