//! Arguments of the commands that read stores and mounts.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::store_args::StoreArgs;
use super::{examples, units};

/// Arguments of `zarrfs tree`.
#[derive(Args, Debug)]
#[command(after_help = examples::TREE)]
pub struct TreeArgs {
    /// The store, or a group or an array in it
    pub path: String,
    /// How many levels of groups to show
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Count all stored chunks, however many there are
    #[arg(long)]
    pub sizes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs ls`.
#[derive(Args, Debug)]
#[command(after_help = examples::LS)]
pub struct LsArgs {
    /// The store, or a group or an array in it
    pub path: String,
    /// Say what each node is
    #[arg(short, long)]
    pub long: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs info`.
#[derive(Args, Debug)]
#[command(after_help = examples::INFO)]
pub struct InfoArgs {
    /// The store, a group or an array in it, the name of a decoded file: tas/tas@0.nii, or the key of a shard or of an
    /// inner chunk in it: tas/c/0/0@1.0
    pub path: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs cp`.
#[derive(Args, Debug)]
#[command(after_help = examples::CP)]
pub struct CpArgs {
    /// The array or group, after the path or URL of its store; @ and a selection after an array is a region: tas@0,:,10:20
    pub path: String,
    /// The file to write
    pub file: PathBuf,
    /// The format, such as npy or cf.npy, if it is not that of the file's ending
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// What a map is coloured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// Whether chunks are stored.
    Presence,
    /// How long they are as they are stored.
    Size,
    /// How much longer they are decoded.
    Ratio,
}

/// Arguments of `zarrfs map`.
#[derive(Args, Debug)]
#[command(after_help = examples::MAP)]
pub struct MapArgs {
    /// The array, or the key of a shard, after the path or URL of its store
    pub path: String,
    /// Which dimensions are rows and columns, such as 0,2
    #[arg(long, value_name = "ROWS,COLUMNS", value_parser = units::pair)]
    pub axes: Option<(usize, usize)>,
    /// What the colours show
    #[arg(long, value_enum, value_name = "MEASURE", default_value = "presence")]
    pub by: Measure,
    /// Decode every stored chunk
    #[arg(long)]
    pub data: bool,
    /// Write the picture to this file, a PNG or SVG by its ending
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs preview`.
#[derive(Args, Debug)]
#[command(after_help = examples::PREVIEW)]
pub struct PreviewArgs {
    /// The array, after the path or URL of its store; @ and a selection after it is a region: tas@0,:,10:20
    pub path: String,
    /// Write the picture to this file, a PNG or SVG by its ending
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the plane and its range as JSON, and no picture
    #[arg(long)]
    pub json: bool,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs stats`.
#[derive(Args, Debug)]
#[command(after_help = examples::STATS)]
pub struct StatsArgs {
    /// The mountpoint
    pub dir: PathBuf,
    /// Print them again and again, with how much a second brings
    #[arg(long, conflicts_with_all = ["json", "prometheus"])]
    pub watch: bool,
    /// How long to wait in between
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1s", requires = "watch")]
    pub interval: Duration,
    /// Print the text that Prometheus reads
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `zarrfs cat`.
#[derive(Args, Debug)]
#[command(after_help = examples::CAT)]
pub struct CatArgs {
    /// The key or the array, after the path or URL of its store; KEY@N is an inner chunk of a shard: tas/c/0/0@1.0
    pub path: String,
    /// Print the elements of the chunk that has this key
    #[arg(long)]
    pub decode: bool,
    /// Print elements of the array, selected as in numpy: 0,:,10:20
    #[arg(
        long,
        value_name = "SELECTION",
        allow_hyphen_values = true,
        conflicts_with = "decode"
    )]
    pub select: Option<String>,
    /// How elements are printed: text, or a format of files such as npy, raw, cf.npy, or txt for strings as lines of JSON
    #[arg(long, value_name = "NAME", default_value = "text")]
    pub format: String,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs check`.
#[derive(Args, Debug)]
#[command(after_help = examples::CHECK)]
pub struct CheckArgs {
    /// The store, or a group or array in it: a path, a URL or a path in a mount
    pub path: String,
    /// Read and decode every chunk
    #[arg(long)]
    pub data: bool,
    /// Before that, make this anew; writes, and so needs --cow or --yes
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "consolidated")]
    pub fix: Option<Mendable>,
    /// Write to the folder UPPER, as a mount with --cow does, and not to the store
    #[arg(long, value_name = "UPPER", requires = "fix", conflicts_with = "yes")]
    pub cow: Option<PathBuf>,
    /// Write to the store itself
    #[arg(long, requires = "fix")]
    pub yes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// What a check can make anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mendable {
    /// The consolidated metadata of the group, and of the groups below it that have some.
    Consolidated,
}

/// Arguments of `zarrfs completions`.
#[derive(Args, Debug)]
#[command(after_help = examples::COMPLETIONS)]
pub struct CompletionsArgs {
    /// The shell: bash, zsh, fish, elvish or powershell
    #[arg(hide_possible_values = true)]
    pub shell: clap_complete::Shell,
}
