//! The formats in which directories list an array or a whole group.
//!
//! By default, an array's directory lists the array in one format, and a group's directory lists no file of the whole
//! group; options add formats. Every format opens by name, listed or not. A recursive program meets each array once: as
//! one file, or as its stored chunks if the file would be large and most of the array is not stored.
//!
//! After a lookup of a header file or its data file, the directory lists both: GDAL opens one of the two, and looks for
//! the other in the listing.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use lru::LruCache;
use parking_lot::Mutex;

use zarr_format::error::{Error, Result};
use zarr_format::model::Array;
use zarrfs_export::formats::group::GroupFormat;
use zarrfs_export::formats::{FORMATS, Format, GROUP_FORMATS, Subject, npy, plain};
use zarrfs_export::inspect::file_ending::FileEnding;
use zarrfs_export::inspect::file_ending::RemovedFormat;
use zarrfs_store::Key;

/// A value of `--list`, which selects files that directories list.
#[derive(Clone, Copy, Debug)]
pub enum ListedFormat {
    /// Lists arrays and groups as files with the given extension.
    Extension(&'static str),
    /// Lists the directory of an array's stored chunks.
    Chunks,
    /// Lists files with every extension, and the directory of chunks.
    All,
}

impl FromStr for ListedFormat {
    type Err = Error;

    fn from_str(word: &str) -> Result<ListedFormat> {
        match word {
            "chunks" => Ok(ListedFormat::Chunks),
            "all" => Ok(ListedFormat::All),
            _ => {
                if let Some(removed) = RemovedFormat::of_extension(word) {
                    return Err(removed.error(word));
                }
                let known = extensions().into_iter().find(|known| *known == word);
                known.map(ListedFormat::Extension).ok_or_else(|| {
                    let names = extensions().join(", ");
                    let (chunks, all) = (ListedFormat::Chunks, ListedFormat::All);
                    let why = format!("unknown format; choose from {names}, {chunks} and {all}");
                    Error::invalid(word, why)
                })
            }
        }
    }
}

fn extensions() -> Vec<&'static str> {
    let of_arrays = FORMATS.iter().map(|format| format.extension);
    let mut all: Vec<_> = of_arrays.collect();
    for format in GROUP_FORMATS {
        if !all.contains(&format.extension) {
            all.push(format.extension);
        }
    }
    all
}

impl fmt::Display for ListedFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ListedFormat::Extension(extension) => extension,
            ListedFormat::Chunks => "chunks",
            ListedFormat::All => "all",
        })
    }
}

/// The formats in which directories list arrays and groups as files.
#[derive(Clone, Debug, Default)]
pub(super) struct ListedFormats {
    /// The array formats that `--list` adds to the default format.
    formats: Vec<&'static Format>,
    /// The formats of whole groups that `--list` adds.
    pub(super) group_formats: Vec<&'static GroupFormat>,
    /// Whether `--list` adds the directory of an array's stored chunks.
    pub(super) chunks: bool,
}

impl ListedFormats {
    pub(super) fn new(words: &[ListedFormat]) -> ListedFormats {
        let mut listed = ListedFormats::default();
        for word in words {
            match word {
                ListedFormat::Extension(extension) => listed.add(|known| known == *extension),
                ListedFormat::Chunks => listed.chunks = true,
                ListedFormat::All => {
                    listed.add(|_| true);
                    listed.chunks = true;
                }
            }
        }
        listed
    }

    /// Adds the array and group formats whose extension `is_requested` accepts.
    fn add(&mut self, is_requested: impl Fn(&str) -> bool) {
        let of_arrays = FORMATS
            .iter()
            .filter(|format| is_requested(format.extension));
        self.formats.extend(of_arrays);
        for format in GROUP_FORMATS {
            let is_new = !self
                .group_formats
                .iter()
                .any(|known| known.extension == format.extension);
            if is_new && is_requested(format.extension) {
                self.group_formats.push(format);
            }
        }
    }

    /// Returns the formats that `--list` adds and that can express the array, each once.
    pub(super) fn requested(&self, subject: &Subject) -> Vec<&'static Format> {
        let is_requested = |format: &&&Format| self.formats.iter().any(|listed| listed.is(format));
        let requested = FORMATS.iter().filter(is_requested).copied();
        requested.filter(|format| format.fits(subject)).collect()
    }

    /// Returns the formats in which an array's directory lists the array, beginning with the default format.
    pub(super) fn listed(&self, subject: &Subject) -> Vec<&'static Format> {
        let own = default_format(subject.array);
        let others = self.requested(subject).into_iter();
        let others = others.filter(|format| !format.is(own));
        std::iter::once(own).chain(others).collect()
    }
}

/// Returns the default format of an array, which is always listed.
pub(super) fn default_format(array: &Array) -> &'static Format {
    if array.data_type.is_variable() {
        &plain::TXT
    } else {
        &npy::FORMAT
    }
}

/// The extensions of data files, each with the extension of its header file.
const PAIRS: [[&str; 2]; 4] = [
    ["img", "hdr"],
    ["raw", "hdr"],
    ["raw", "nhdr"],
    ["raw", "mhd"],
];

/// Maximum number of file name endings that are remembered for each array.
const MAX_NAMES: usize = 16;

/// The header and data files of each array that programs looked up last, such as `.nhdr` and `.raw`. Clones of a view
/// share the table.
pub(super) struct HeaderDataPairs {
    /// For each array, the endings of the files (their names without the array's name), in the order of the lookups.
    endings: Mutex<LruCache<Key, Vec<String>>>,
}

impl Default for HeaderDataPairs {
    fn default() -> HeaderDataPairs {
        HeaderDataPairs {
            endings: Mutex::new(LruCache::new(const { NonZeroUsize::new(1024).unwrap() })),
        }
    }
}

impl HeaderDataPairs {
    /// Records the lookup of an array's file, if the file has a header or is one.
    pub(super) fn record_lookup(&self, array: &Key, ending: &FileEnding<'_>) {
        let extension = ending.format.extension;
        if !PAIRS.as_flattened().contains(&extension) {
            return;
        }
        let ending = format!("{}.{extension}", ending.chosen);
        let mut all = self.endings.lock();
        let endings = all.get_or_insert_mut(array.clone(), Vec::new);
        endings.retain(|known| *known != ending);
        endings.push(ending);
        if endings.len() > MAX_NAMES {
            endings.remove(0);
        }
    }

    /// Returns, each once, the endings of an array's header and data files that were looked up, and of the files that
    /// belong to them.
    pub(super) fn endings(&self, array: &Key) -> Vec<String> {
        let looked_up = self.endings.lock().peek(array).cloned();
        let looked_up = looked_up.unwrap_or_default();
        let mut endings: Vec<String> = Vec::new();
        for ending in &looked_up {
            let Some((before, extension)) = ending.rsplit_once('.') else {
                continue;
            };
            let named = |extension: &str| format!("{before}.{extension}");
            let elements = elements_of(extension).map(named).collect::<Vec<_>>();
            let headers = headers_of(extension).map(named);
            // If a data file of the header was looked up, too, the program wants that one, so no other data file is
            // added.
            let is_known = elements.iter().any(|name| looked_up.contains(name));
            let elements = elements.into_iter().take(if is_known { 0 } else { 1 });
            for name in std::iter::once(ending.clone())
                .chain(elements)
                .chain(headers)
            {
                if !endings.contains(&name) {
                    endings.push(name);
                }
            }
        }
        endings
    }
}

/// Returns the extensions of the data files that a header with the given extension can describe.
fn elements_of(extension: &str) -> impl Iterator<Item = &'static str> {
    let pairs = PAIRS.iter().filter(move |[_, header]| extension == *header);
    pairs.map(|[elements, _]| *elements)
}

/// Returns the extensions of the headers that can describe a data file with the given extension.
fn headers_of(extension: &str) -> impl Iterator<Item = &'static str> {
    let pairs = PAIRS
        .iter()
        .filter(move |[elements, _]| extension == *elements);
    pairs.map(|[_, header]| *header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_format_is_refused_with_the_known_ones() {
        let names = extensions();
        assert!(names.contains(&"nc") && names.contains(&"nrrd"));
        for &word in [&names[..], &["chunks", "all"]].concat().iter() {
            assert_eq!(word.parse::<ListedFormat>().unwrap().to_string(), word);
        }
        let error = "wav".parse::<ListedFormat>().unwrap_err().to_string();
        assert!(error.contains("; use .raw"), "{error}");
        let error = "row".parse::<ListedFormat>().unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "row: unknown format; choose from {}, chunks and all",
                names.join(", ")
            )
        );
    }

    #[test]
    fn a_lookup_of_one_file_of_a_pair_names_both() {
        let pairs = HeaderDataPairs::default();
        let array = Key::new("a").unwrap();
        let note = |ending: &str| {
            pairs.record_lookup(&array, &FileEnding::parse(ending.as_bytes()).unwrap())
        };
        note(".npy");
        note("@0.tif");
        assert!(pairs.endings(&array).is_empty());
        note(".mhd");
        note("@0.cf.img");
        note(".mhd");
        let expected = ["@0.cf.img", "@0.cf.hdr", ".mhd", ".raw"];
        assert_eq!(pairs.endings(&array), expected);
        // A program that looks up a data file and then its header wants no other data file.
        note(".raw");
        note(".hdr");
        let expected = ["@0.cf.img", "@0.cf.hdr", ".mhd", ".raw", ".hdr", ".nhdr"];
        assert_eq!(pairs.endings(&array), expected);
        assert!(pairs.endings(&Key::root()).is_empty());
    }

    #[test]
    fn only_the_last_looked_up_pairs_are_kept() {
        let pairs = HeaderDataPairs::default();
        let array = Key::new("a").unwrap();
        for number in 0..2 * MAX_NAMES {
            let ending = format!("@{number}.img");
            pairs.record_lookup(&array, &FileEnding::parse(ending.as_bytes()).unwrap());
        }
        let endings = pairs.endings(&array);
        assert_eq!(endings.len(), 2 * MAX_NAMES);
        assert_eq!(endings[0], format!("@{MAX_NAMES}.img"));
    }
}
