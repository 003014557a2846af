//! What the names of decoded files ask for: `.EXT`, `.cf.EXT` and `@SELECTION.EXT` after the name of an array.
//!
//! Names are read here for the files view and for commands; whether there is such a file is not looked at.

use std::path::Path;

use crate::error::{Error, Result};
use crate::export::group::GroupFormat;
use crate::export::removed::RemovedFormat;
use crate::export::{FORMATS, Format, GROUP_FORMATS, VARIABLE_FORMATS};

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

/// What a name asks for of a group, or of an array with its coordinates.
#[derive(Clone, Copy, Debug)]
pub struct GroupChoice<'a> {
    /// The format.
    pub format: &'static GroupFormat,
    /// What is selected; `None` for all.
    pub selection: Option<&'a str>,
    /// Whether the values are asked for that attributes say the elements mean.
    pub is_meant: bool,
}

impl GroupChoice<'_> {
    /// Returns the choice of all that a format can hold.
    pub fn whole(format: &'static GroupFormat) -> GroupChoice<'static> {
        GroupChoice {
            format,
            selection: None,
            is_meant: false,
        }
    }

    /// Reads what follows the name of an array: `.EXT`, `.cf.EXT` and `@SELECTION.EXT` for the formats that have a variable
    /// with its coordinates; `None` if it names none.
    pub fn of_variable(ending: &[u8]) -> Option<GroupChoice<'_>> {
        let ending = str::from_utf8(ending).ok()?;
        let mut formats = VARIABLE_FORMATS.iter();
        let (format, rest) = formats.find_map(|&format| {
            let rest = ending.strip_suffix(format.extension)?;
            Some((format, rest.strip_suffix('.')?))
        })?;
        let meant = rest
            .strip_suffix(MEANT)
            .and_then(|rest| rest.strip_suffix('.'));
        let selection = match meant.unwrap_or(rest) {
            "" => None,
            selection => Some(selection.strip_prefix(SELECTED)?),
        };
        Some(GroupChoice {
            format,
            selection,
            is_meant: meant.is_some(),
        })
    }

    /// Reads what follows the name of a group: the same, and `.EXT` of the other formats of groups.
    pub fn of_group(ending: &[u8]) -> Option<GroupChoice<'_>> {
        GroupChoice::of_variable(ending).or_else(|| {
            let extension = str::from_utf8(ending).ok()?.strip_prefix('.')?;
            let mut formats = GROUP_FORMATS.iter();
            let format = formats.find(|format| format.extension == extension)?;
            Some(GroupChoice::whole(format))
        })
    }

    /// Returns what the name of a file asks for by its end, if that names a format that has a variable with its coordinates.
    pub fn of_name(name: &str) -> Option<GroupChoice<'static>> {
        if RemovedFormat::of_name(name).is_some() {
            return None;
        }
        let mut formats = VARIABLE_FORMATS.iter();
        let (format, stem) = formats.find_map(|&format| {
            let stem = name.strip_suffix(format.extension)?;
            Some((format, stem.strip_suffix('.')?))
        })?;
        let is_meant = Path::new(stem).extension().is_some_and(|end| end == MEANT);
        Some(GroupChoice {
            is_meant,
            ..GroupChoice::whole(format)
        })
    }

    /// Returns what the name of a format asks for: `EXT` or `cf.EXT` of such a format.
    pub fn of_format(name: &str) -> Option<GroupChoice<'static>> {
        let meant = without_meant(name);
        let extension = meant.unwrap_or(name);
        let mut formats = VARIABLE_FORMATS.iter();
        let format = formats.find(|format| format.extension == extension)?;
        Some(GroupChoice {
            is_meant: meant.is_some(),
            ..GroupChoice::whole(format)
        })
    }
}

/// Elements in a format, or the values that attributes say they mean.
#[derive(Clone, Copy)]
pub struct FileContent {
    /// The format.
    pub format: &'static Format,
    /// Whether the file has the values that the elements mean.
    pub is_meant: bool,
}

impl FileContent {
    /// Returns what the ending of a file name asks for: `.EXT` or `.cf.EXT`.
    pub fn of_name(name: &str) -> Result<FileContent> {
        if let Some(removed) = RemovedFormat::of_name(name) {
            return Err(removed.error(name));
        }
        // Of `cf.npy` and `npy` the longer one.
        let endings = name.match_indices('.').map(|(dot, _)| dot + 1);
        let mut endings = endings.filter_map(|start| name.get(start..));
        let found = endings.find_map(FileContent::of_extension);
        found.ok_or_else(|| not_a_format(name, "has no ending that names a format"))
    }

    /// Returns what the name of a format asks for: `EXT` or `cf.EXT` and nothing else.
    pub fn of_format(name: &str) -> Result<FileContent> {
        let extension = without_meant(name).unwrap_or(name);
        if let Some(removed) = RemovedFormat::of_extension(extension) {
            return Err(removed.error(name));
        }
        FileContent::of_extension(name).ok_or_else(|| not_a_format(name, "not a format"))
    }

    fn of_extension(name: &str) -> Option<FileContent> {
        let meant = without_meant(name);
        let extension = meant.unwrap_or(name);
        let mut formats = FORMATS.iter();
        formats
            .find(|format| format.extension == extension)
            .map(|format| FileContent {
                format,
                is_meant: meant.is_some(),
            })
    }
}

/// Returns the name of a format behind `cf.`, or `None` if that does not stand before it.
fn without_meant(name: &str) -> Option<&str> {
    name.strip_prefix(MEANT)?.strip_prefix('.')
}

/// Returns the format of groups of a name.
pub fn group_format(name: &str) -> Result<&'static GroupFormat> {
    if let Some(removed) = RemovedFormat::of_extension(name) {
        return Err(removed.error(name));
    }
    let found = GROUP_FORMATS.iter().find(|format| format.extension == name);
    found
        .copied()
        .ok_or_else(|| not_of_groups(name, "not a format of groups"))
}

/// Returns the format of groups that a file name ends with.
pub fn group_format_of_name(name: &str) -> Result<&'static GroupFormat> {
    if let Some(removed) = RemovedFormat::of_name(name) {
        return Err(removed.error(name));
    }
    let mut formats = GROUP_FORMATS.iter();
    let found = formats.find(|format| {
        let stem = name.strip_suffix(format.extension);
        stem.is_some_and(|stem| stem.ends_with('.'))
    });
    let why = "has no ending that names a format of groups";
    let format = *found.ok_or_else(|| not_of_groups(name, why))?;
    let stem = name.strip_suffix(format.extension).unwrap_or_default();
    let is_of_variables = VARIABLE_FORMATS
        .iter()
        .any(|of_variables| of_variables.extension == format.extension);
    if !is_of_variables && stem.ends_with(&format!(".{MEANT}.")) {
        let extension = format.extension;
        let meant: Vec<String> = VARIABLE_FORMATS
            .iter()
            .map(|format| format!("{MEANT}.{}", format.extension))
            .collect();
        let why = format!(
            "groups have values as they are meant in {}, not in {extension}; '--format {extension}' writes them as they are \
             stored",
            meant.join(", ")
        );
        return Err(Error::invalid(name, why));
    }
    Ok(format)
}

/// Returns the error of a name that asks for no file of a group, with the names that do.
fn not_of_groups(name: &str, why: &str) -> Error {
    let names = GROUP_FORMATS.iter().map(|format| format.extension);
    let names: Vec<&str> = names.collect();
    Error::invalid(name, format!("{why}; there are {}", names.join(", ")))
}

/// Returns the error of a name that asks for no content, with the names that do.
fn not_a_format(name: &str, why: &str) -> Error {
    let names = FORMATS.iter().map(|format| format.extension);
    let names: Vec<&str> = names.collect();
    let names = names.join(", ");
    Error::invalid(
        name,
        format!("{why}; there are {names}, with {MEANT} before any"),
    )
}

/// Returns the removed format of a file that an ending names: `.EXT`, `.cf.EXT` or `@SELECTION.EXT`.
pub fn removed_format(ending: &[u8]) -> Option<RemovedFormat> {
    let ending = str::from_utf8(ending).ok()?;
    let is_ending = ending.starts_with(['.', SELECTED]);
    RemovedFormat::of_name(ending).filter(|_| is_ending)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_a_group_has_no_values_as_they_are_meant() {
        for name in ["x.cf.csv", "x.cf.ndjson", "dir/.cf.csv"] {
            let why = group_format_of_name(name).unwrap_err().to_string();
            assert!(why.contains("cf.nc4") && why.contains("--format"), "{why}");
        }
        for (name, extension) in [
            ("x.csv", "csv"),
            ("xcf.csv", "csv"),
            ("a.cf/x.ndjson", "ndjson"),
            ("x.cf.nc4", "nc4"),
        ] {
            assert_eq!(group_format_of_name(name).unwrap().extension, extension);
        }
    }
}
