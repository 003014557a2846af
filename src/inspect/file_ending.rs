//! What the names of decoded files ask for: `.EXT`, `.cf.EXT` and `@SELECTION.EXT` after the name of an array.
//!
//! Names are read here for the files view and for commands; whether there is such a file is not looked at.

use crate::error::{Error, Result};
use crate::export::group::GroupFormat;
use crate::export::{FORMATS, Format, GROUP_FORMATS};

/// What follows the name of an array in that of one of its files.
#[derive(Clone, Copy)]
pub struct FileEnding<'a> {
    /// What stands before the extension: the selection with its sign, and what asks for values as they are meant.
    pub chosen: &'a str,
    /// What is selected; nothing for the whole array.
    pub selection: Option<&'a str>,
    /// Whether the values are asked for that attributes say the elements mean.
    pub is_meant: bool,
    /// The format.
    pub format: &'static Format,
}

/// What stands before the extension of a file of values as they are meant.
const MEANT: &str = "cf";

/// What stands before a selection.
pub const SELECTED: char = '@';

impl FileEnding<'_> {
    /// Returns the ending of the file of all elements in a format.
    pub fn whole(format: &'static Format) -> FileEnding<'static> {
        FileEnding {
            chosen: "",
            selection: None,
            is_meant: false,
            format,
        }
    }

    /// Reads what follows the name of an array; nothing if it names no format.
    pub fn parse(ending: &[u8]) -> Option<FileEnding<'_>> {
        let ending = str::from_utf8(ending).ok()?;
        let format = format_of(ending)?;
        let rest = ending.strip_suffix(format.extension)?.strip_suffix('.')?;
        let meant = rest
            .strip_suffix(MEANT)
            .and_then(|rest| rest.strip_suffix('.'));
        let selection = meant.unwrap_or(rest);
        Some(FileEnding {
            chosen: rest,
            selection: match selection {
                "" => None,
                selection => Some(selection.strip_prefix(SELECTED)?),
            },
            is_meant: meant.is_some(),
            format,
        })
    }
}

/// What is in a file that is made of an array outside a mount.
#[derive(Clone, Copy)]
pub enum FileContent {
    /// Elements in a format, or the values that attributes say they mean.
    Elements {
        /// The format.
        format: &'static Format,
        /// Whether it has the values.
        is_meant: bool,
    },
    /// A picture.
    Picture,
}

impl FileContent {
    /// Returns what the ending of a file name asks for: `.EXT`, `.cf.EXT` or `.png`.
    pub fn of_name(name: &str) -> Option<FileContent> {
        let endings = name.match_indices('.').map(|(dot, _)| dot + 1);
        // Of `cf.npy` and `npy` the longer one.
        let mut endings = endings.filter_map(|start| name.get(start..));
        endings
            .find(|ending| FileContent::of_format(ending).is_ok() || *ending == MEANT_PICTURE)
            .and_then(|ending| FileContent::of_format(ending).ok())
    }

    /// Returns what the name of a format asks for: `EXT`, `cf.EXT` or `png` and nothing else.
    pub fn of_format(name: &str) -> Result<FileContent> {
        if name == PICTURE_NAME {
            return Ok(FileContent::Picture);
        }
        let meant = name.strip_prefix(MEANT);
        let meant = meant.and_then(|name| name.strip_prefix('.'));
        let extension = meant.unwrap_or(name);
        let format = FORMATS.iter().find(|format| format.extension == extension);
        let format = format.ok_or_else(|| not_a_format(name, "not a format"))?;
        Ok(FileContent::Elements {
            format,
            is_meant: meant.is_some(),
        })
    }
}

/// Returns the format of groups of a name.
pub fn group_format(name: &str) -> Result<&'static GroupFormat> {
    let found = GROUP_FORMATS.iter().find(|format| format.extension == name);
    found
        .copied()
        .ok_or_else(|| not_of_groups(name, "not a format of groups"))
}

/// Returns the format of groups that a file name ends with: of `cdf5.nc` and `nc` the longer one.
pub fn group_format_of_name(name: &str) -> Option<&'static GroupFormat> {
    let ends = |format: &&&GroupFormat| {
        let stem = name.strip_suffix(format.extension);
        stem.is_some_and(|stem| stem.ends_with('.'))
    };
    let fitting = GROUP_FORMATS.iter().filter(ends);
    fitting.max_by_key(|format| format.extension.len()).copied()
}

/// Returns the error of a name that asks for no file of a group, with the names that do.
pub fn not_of_groups(name: &str, why: &str) -> Error {
    let names = GROUP_FORMATS.iter().map(|format| format.extension);
    let names: Vec<&str> = names.collect();
    Error::invalid(name, format!("{why}; there are {}", names.join(", ")))
}

/// Returns the error of a name that asks for no content, with the names that do.
pub fn not_a_format(name: &str, why: &str) -> Error {
    let names = FORMATS.iter().map(|format| format.extension);
    let names: Vec<&str> = names.collect();
    let names = names.join(", ");
    Error::invalid(
        name,
        format!("{why}; there are {names}, with {MEANT} before any, and {PICTURE_NAME}"),
    )
}

/// Returns the format that a name ends with: of `f.npy` and `npy` the longer one.
pub fn format_of(name: &str) -> Option<&'static Format> {
    let ends = |format: &&&Format| {
        let stem = name.strip_suffix(format.extension);
        stem.is_some_and(|stem| stem.ends_with('.'))
    };
    let fitting = FORMATS.iter().filter(ends);
    let longest = fitting.max_by_key(|format| format.extension.len());
    longest.copied()
}

/// Returns what `@SELECTION.png` or `.png` selects, if an ending is one of these; the latter selects all.
pub fn picture_selection(ending: &[u8]) -> Option<&str> {
    let selection = str::from_utf8(ending).ok()?.strip_suffix(PICTURE)?;
    match selection {
        "" => Some("..."),
        selection => selection.strip_prefix(SELECTED),
    }
}

/// What the name of a picture ends with.
pub const PICTURE: &str = ".png";

/// What would be a picture of values as they are meant, which is not there.
const MEANT_PICTURE: &str = "cf.png";

/// The name of the format of pictures.
const PICTURE_NAME: &str = "png";
