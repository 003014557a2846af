//! Parses names of decoded files: `.EXT`, `.cf.EXT` and `@SELECTION.EXT` after an array's name.
//!
//! The files view and the commands parse names here; whether the file exists is not checked.

use crate::formats::group::GroupFormat;
use crate::formats::{FORMATS, Format, GROUP_FORMATS, VARIABLE_FORMATS};
use zarr_format::error::{Error, Kind, Result};

/// The ending of an exported file's name: everything after the name of the array.
#[derive(Clone, Copy)]
pub struct FileEnding<'a> {
    /// The part of the file name between the array's name and the dot of the extension: a selection with its `@`,
    /// `.cf`, or both.
    pub chosen: &'a str,
    /// The selection in the file name, or `None` for the whole array.
    pub selection: Option<&'a str>,
    /// Whether the file has values that are decoded by the CF attributes.
    pub is_cf_decoded: bool,
    /// The format that the extension names.
    pub format: &'static Format,
}

/// The part of a file name before the extension that stands for values decoded by the CF attributes.
const CF: &str = "cf";

/// The character in a file name before a selection.
pub const SELECTED: char = '@';

impl FileEnding<'_> {
    /// Returns the ending of the file that has all elements of an array in a format.
    pub fn whole(format: &'static Format) -> FileEnding<'static> {
        FileEnding {
            chosen: "",
            selection: None,
            is_cf_decoded: false,
            format,
        }
    }

    /// Parses the part of a file name after the array's name; `None` if it names no format.
    pub fn parse(ending: &[u8]) -> Option<FileEnding<'_>> {
        let ending = str::from_utf8(ending).ok()?;
        let format = format_of(ending)?;
        let rest = ending.strip_suffix(format.extension)?.strip_suffix('.')?;
        let ChosenPart {
            selection,
            is_cf_decoded,
        } = ChosenPart::parse(rest)?;
        Some(FileEnding {
            chosen: rest,
            selection,
            is_cf_decoded,
            format,
        })
    }
}

/// The parsed part of a file name between the node's name and the dot of the extension.
struct ChosenPart<'a> {
    selection: Option<&'a str>,
    is_cf_decoded: bool,
}

impl ChosenPart<'_> {
    fn parse(part: &str) -> Option<ChosenPart<'_>> {
        let bare = part.strip_suffix(CF);
        let bare = bare.and_then(|bare| bare.strip_suffix('.'));
        Some(ChosenPart {
            selection: match bare.unwrap_or(part) {
                "" => None,
                selection => Some(selection.strip_prefix(SELECTED)?),
            },
            is_cf_decoded: bare.is_some(),
        })
    }
}

/// A requested file of a group, or of an array with its coordinate variables.
#[derive(Clone, Copy, Debug)]
pub struct GroupChoice<'a> {
    /// The format of the file.
    pub format: &'static GroupFormat,
    /// The selection of elements, or `None` for all elements.
    pub selection: Option<&'a str>,
    /// Whether the file has values that are decoded by the CF attributes.
    pub is_cf_decoded: bool,
}

impl GroupChoice<'_> {
    /// Requests the file with everything that the format can hold.
    pub fn whole(format: &'static GroupFormat) -> GroupChoice<'static> {
        GroupChoice {
            format,
            selection: None,
            is_cf_decoded: false,
        }
    }

    /// Parses the part of a file name after the name of an array: `.EXT`, `.cf.EXT` or `@SELECTION.EXT`. Returns `None`
    /// unless EXT is a format that holds an array with its coordinate variables.
    pub fn of_variable(ending: &[u8]) -> Option<GroupChoice<'_>> {
        GroupChoice::of_ending(ending, VARIABLE_FORMATS)
    }

    /// Parses the part of a file name after the name of a group: `.EXT`, `.cf.EXT` or `@SELECTION.EXT`. Formats that
    /// always hold the whole group have only `.EXT`.
    pub fn of_group(ending: &[u8]) -> Option<GroupChoice<'_>> {
        let choice = GroupChoice::of_ending(ending, GROUP_FORMATS)?;
        let is_whole = choice.selection.is_none() && !choice.is_cf_decoded;
        (is_whole || choice.format.has_parts()).then_some(choice)
    }

    fn of_ending<'a>(
        ending: &'a [u8],
        formats: &[&'static GroupFormat],
    ) -> Option<GroupChoice<'a>> {
        let ending = str::from_utf8(ending).ok()?;
        let (format, rest) = format_of_groups(ending, formats)?;
        let ChosenPart {
            selection,
            is_cf_decoded,
        } = ChosenPart::parse(rest)?;
        Some(GroupChoice {
            format,
            selection,
            is_cf_decoded,
        })
    }

    /// Parses the ending of a file name; `None` if it names no format that holds an array with its coordinate
    /// variables.
    pub fn of_name(name: &str) -> Option<GroupChoice<'static>> {
        if RemovedFormat::of_name(name).is_some() {
            return None;
        }
        GroupChoice::by_end(name, VARIABLE_FORMATS)
    }

    /// Parses the name (`EXT` or `cf.EXT`) of a format that holds an array with its coordinate variables.
    pub fn of_format(name: &str) -> Option<GroupChoice<'static>> {
        GroupChoice::by_format(name, VARIABLE_FORMATS)
    }

    /// Parses the ending of the file name of a group; fails if it names no format of groups.
    pub fn of_group_name(name: &str) -> Result<GroupChoice<'static>> {
        if let Some(removed) = RemovedFormat::of_name(name) {
            return Err(removed.error(name));
        }
        let why = "the file name does not end in a format of groups";
        let choice = GroupChoice::by_end(name, GROUP_FORMATS);
        choice
            .ok_or_else(|| unknown_group_format(name, why))?
            .checked(name)
    }

    /// Parses the name (`EXT` or `cf.EXT`) of a format of groups.
    pub fn of_group_format(name: &str) -> Result<GroupChoice<'static>> {
        if let Some(removed) = RemovedFormat::of_extension(without_cf(name).unwrap_or(name)) {
            return Err(removed.error(name));
        }
        let choice = GroupChoice::by_format(name, GROUP_FORMATS);
        let choice =
            choice.ok_or_else(|| unknown_group_format(name, "unknown format of groups"))?;
        choice.checked(name)
    }

    fn by_end(name: &str, formats: &[&'static GroupFormat]) -> Option<GroupChoice<'static>> {
        let (format, stem) = format_of_groups(name, formats)?;
        let bare = stem.strip_suffix(CF);
        let is_cf_decoded = bare.is_some_and(|rest| rest.ends_with('.'));
        Some(GroupChoice {
            is_cf_decoded,
            ..GroupChoice::whole(format)
        })
    }

    fn by_format(name: &str, formats: &[&'static GroupFormat]) -> Option<GroupChoice<'static>> {
        let bare = without_cf(name);
        let extension = bare.unwrap_or(name);
        let mut formats = formats.iter();
        let format = formats.find(|format| format.extension == extension)?;
        Some(GroupChoice {
            is_cf_decoded: bare.is_some(),
            ..GroupChoice::whole(format)
        })
    }
}

impl<'a> GroupChoice<'a> {
    /// Returns the request unchanged, or fails with `Invalid` if it asks for a selection or CF-decoded values of a
    /// format that can hold only the whole group as stored.
    pub fn checked(self, name: &str) -> Result<GroupChoice<'a>> {
        if self.format.has_parts() || (self.selection.is_none() && !self.is_cf_decoded) {
            return Ok(self);
        }
        let formats = GROUP_FORMATS.iter().filter(|format| format.has_parts());
        let names: Vec<&str> = formats.map(|format| format.extension).collect();
        let (names, extension) = (names.join(", "), self.format.extension);
        let why = match self.selection {
            Some(_) => format!("a part of a group can be written as {names}, not as {extension}"),
            None => format!(
                "CF-decoded values of a group can be written as {names}, not as {extension}; '--format {extension}' \
                 writes stored values"
            ),
        };
        Err(Error::invalid(name, why))
    }
}

/// Returns the format of groups whose extension ends a name, and the part of the name before the dot of the extension.
fn format_of_groups<'a>(
    name: &'a str,
    formats: &[&'static GroupFormat],
) -> Option<(&'static GroupFormat, &'a str)> {
    formats.iter().find_map(|&format| {
        let stem = name.strip_suffix(format.extension)?;
        Some((format, stem.strip_suffix('.')?))
    })
}

/// A format, and whether its elements are as stored or decoded by the CF attributes.
#[derive(Clone, Copy)]
pub struct FileContent {
    /// The format of the file.
    pub format: &'static Format,
    /// Whether the file has values that are decoded by the CF attributes.
    pub is_cf_decoded: bool,
}

impl FileContent {
    /// Parses the end of a file name: `.EXT` or `.cf.EXT`. The name may begin with anything.
    pub fn of_name(name: &str) -> Result<FileContent> {
        if let Some(removed) = RemovedFormat::of_name(name) {
            return Err(removed.error(name));
        }
        // The longest known ending is used: `cf.npy` instead of `npy`.
        let endings = name.match_indices('.').map(|(dot, _)| dot + 1);
        let mut endings = endings.filter_map(|start| name.get(start..));
        let found = endings.find_map(FileContent::of_extension);
        found.ok_or_else(|| {
            let why = "the file name does not end in a format, such as .npy, .tif, .nc4 or .csv; \
                       'zarrfs info PATH' lists the formats of an array";
            Error::invalid(name, why)
        })
    }

    /// Parses the name of a format, which must be exactly `EXT` or `cf.EXT`.
    pub fn of_format(name: &str) -> Result<FileContent> {
        let extension = without_cf(name).unwrap_or(name);
        if let Some(removed) = RemovedFormat::of_extension(extension) {
            return Err(removed.error(name));
        }
        FileContent::of_extension(name).ok_or_else(|| unknown_format(name, "unknown format"))
    }

    fn of_extension(name: &str) -> Option<FileContent> {
        let bare = without_cf(name);
        let extension = bare.unwrap_or(name);
        let mut formats = FORMATS.iter();
        formats
            .find(|format| format.extension == extension)
            .map(|format| FileContent {
                format,
                is_cf_decoded: bare.is_some(),
            })
    }
}

fn without_cf(name: &str) -> Option<&str> {
    name.strip_prefix(CF)?.strip_prefix('.')
}

fn unknown_group_format(name: &str, why: &str) -> Error {
    let names = GROUP_FORMATS.iter().map(|format| format.extension);
    let names: Vec<&str> = names.collect();
    Error::invalid(name, format!("{why}; choose one of {}", names.join(", ")))
}

fn unknown_format(name: &str, why: &str) -> Error {
    let names = FORMATS.iter().map(|format| format.extension);
    let names: Vec<&str> = names.collect();
    let names = names.join(", ");
    Error::invalid(
        name,
        format!("{why}; choose one of {names}, or for example {CF}.npy for CF-decoded values"),
    )
}

/// Returns the removed format that is named by the part of a file name after the array's name: `.EXT`, `.cf.EXT` or
/// `@SELECTION.EXT`.
pub fn removed_format(ending: &[u8]) -> Option<RemovedFormat> {
    let ending = str::from_utf8(ending).ok()?;
    let is_ending = ending.starts_with(['.', SELECTED]);
    RemovedFormat::of_name(ending).filter(|_| is_ending)
}

/// Returns the format whose extension ends a name. Of several, the longest extension wins: `f.npy` before `npy`.
pub fn format_of(name: &str) -> Option<&'static Format> {
    let ends = |format: &&&Format| {
        let stem = name.strip_suffix(format.extension);
        stem.is_some_and(|stem| stem.ends_with('.'))
    };
    let fitting = FORMATS.iter().filter(ends);
    let longest = fitting.max_by_key(|format| format.extension.len());
    longest.copied()
}

/// A format that earlier versions of zarrfs had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedFormat {
    /// The extension of the removed format's files, without the dot.
    pub extension: &'static str,
    /// The format to use instead.
    instead: &'static str,
}

const fn removed(extension: &'static str, instead: &'static str) -> RemovedFormat {
    RemovedFormat { extension, instead }
}

const REMOVED: [RemovedFormat; 9] = [
    removed(
        "bil",
        ".img with .hdr, which says how bands are interleaved",
    ),
    removed(
        "bip",
        ".img with .hdr, which says how bands are interleaved",
    ),
    removed(
        "bsq",
        ".img with .hdr, which says how bands are interleaved",
    ),
    removed("cdf5.nc", ".nc4, or .nc if the data types fit"),
    removed("f.raw", ".f.npy, or .raw with the dimensions reversed"),
    removed("flt", ".img with .hdr, or .tif"),
    removed(
        "mat",
        ".h5, which MATLAB reads with h5read and Octave with load",
    ),
    removed("png", "'zarrfs preview -o FILE.png'"),
    removed("wav", ".raw, or .npy with scipy.io.wavfile.write"),
];

impl RemovedFormat {
    /// Returns the removed format with a file extension, or `None` if no removed format had it.
    pub fn of_extension(extension: &str) -> Option<RemovedFormat> {
        let mut all = REMOVED.into_iter();
        all.find(|format| format.extension == extension)
    }

    /// Returns the removed format whose extension ends a file name, or `None` if there is none.
    pub fn of_name(name: &str) -> Option<RemovedFormat> {
        let ends = |format: &RemovedFormat| {
            let stem = name.strip_suffix(format.extension);
            stem.is_some_and(|stem| stem.ends_with('.'))
        };
        REMOVED.into_iter().find(ends)
    }

    /// Returns the error for the name of a file or of a format that was removed.
    pub fn error(self, subject: impl std::fmt::Display) -> Error {
        let RemovedFormat { extension, instead } = self;
        let why = format!("zarrfs no longer has .{extension} files; use {instead}");
        Error::new(Kind::Removed, subject, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{FORMATS, GROUP_FORMATS};

    #[test]
    fn group_file_endings_are_parsed_and_images_take_no_options() {
        for (name, extension, is_cf_decoded) in [
            ("x.csv", "csv", false),
            ("x.cf.csv", "csv", true),
            ("dir/.cf.ndjson", "ndjson", true),
            ("xcf.csv", "csv", false),
            ("a.cf/x.ndjson", "ndjson", false),
            ("x.cf.nc4", "nc4", true),
            ("x.ome.tif", "ome.tif", false),
        ] {
            let choice = GroupChoice::of_group_name(name).unwrap();
            let found = (choice.format.extension, choice.is_cf_decoded);
            assert_eq!(found, (extension, is_cf_decoded), "{name}");
        }
        for (ending, expected) in [
            (".cf.csv", Some((None, true, "csv"))),
            ("@x=1.ndjson", Some((Some("x=1"), false, "ndjson"))),
            ("@x=1.5.cf.nc", Some((Some("x=1.5"), true, "nc"))),
            (".ome.tif", Some((None, false, "ome.tif"))),
            ("@x=1.ome.tif", None),
            (".cf.ome.tif", None),
            ("x.csv", None),
        ] {
            let choice = GroupChoice::of_group(ending.as_bytes());
            let found = choice.map(|choice| {
                (
                    choice.selection,
                    choice.is_cf_decoded,
                    choice.format.extension,
                )
            });
            assert_eq!(found, expected, "{ending}");
        }
        let why = |choice: Result<GroupChoice<'_>>| choice.unwrap_err().to_string();
        for asked in [
            GroupChoice::of_group_name("x.cf.ome.tif"),
            GroupChoice::of_group_format("cf.ome.tif"),
        ] {
            let why = why(asked);
            assert!(why.contains("ndjson, not as ome.tif"), "{why}");
        }
    }

    #[test]
    fn removed_formats_are_in_no_table_of_formats() {
        for format in REMOVED {
            let extension = format.extension;
            assert!(FORMATS.iter().all(|known| known.extension != extension));
            let mut of_groups = GROUP_FORMATS.iter();
            assert!(of_groups.all(|known| known.extension != extension));
        }
    }

    #[test]
    fn a_removed_format_is_recognized_by_its_extension() {
        let extension = |name| RemovedFormat::of_name(name).map(|format| format.extension);
        assert_eq!(extension("a@0,:.cf.f.raw"), Some("f.raw"));
        assert_eq!(extension("a.cdf5.nc"), Some("cdf5.nc"));
        for name in ["a.raw", "a.nc", "wav", "a.WAV", "a.wav/b", ""] {
            assert_eq!(extension(name), None, "{name}");
        }
    }
}
