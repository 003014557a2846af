//! Lists both files of a header/data pair once one of them was looked up.
//!
//! GDAL opens one file and looks for the other in the listing of the directory. Before that the listing has neither, so
//! that a recursive program meets each array once.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use zarrfs_export::inspect::file_ending::FileEnding;
use zarrfs_store::Key;

/// The extensions of data files and of their headers.
const PAIRS: [[&str; 2]; 4] = [
    ["img", "hdr"],
    ["raw", "hdr"],
    ["raw", "nhdr"],
    ["raw", "mhd"],
];

/// Maximum number of arrays whose pairs are listed, and of looked-up names for each.
const MAX_ARRAYS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
const MAX_NAMES: usize = 16;

/// The files of pairs that were looked up last; clones of a view share them.
pub(super) struct LookedUpPairs {
    /// For each array the endings of these files, after the array's name; the latest is the last.
    endings: Mutex<LruCache<Key, Vec<String>>>,
}

impl Default for LookedUpPairs {
    fn default() -> LookedUpPairs {
        LookedUpPairs {
            endings: Mutex::new(LruCache::new(MAX_ARRAYS)),
        }
    }
}

impl LookedUpPairs {
    /// Records that a file of an array exists and was looked up.
    pub(super) fn note(&self, array: &Key, ending: &FileEnding<'_>) {
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

    /// Returns the endings of the looked-up files of an array and of their partners, each once.
    pub(super) fn endings(&self, array: &Key) -> Vec<String> {
        let looked_up = self.endings.lock().peek(array).cloned();
        let looked_up = looked_up.unwrap_or_default();
        let mut found: Vec<String> = Vec::new();
        for ending in &looked_up {
            let Some((before, extension)) = ending.rsplit_once('.') else {
                continue;
            };
            let named = |extension: &str| format!("{before}.{extension}");
            let elements = elements_of(extension).map(named).collect::<Vec<_>>();
            let headers = headers_of(extension).map(named);
            // If data files were looked up too, this header was looked for because of them: it needs no other data
            // file.
            let is_known = elements.iter().any(|name| looked_up.contains(name));
            let elements = elements.into_iter().take(if is_known { 0 } else { 1 });
            for name in std::iter::once(ending.clone())
                .chain(elements)
                .chain(headers)
            {
                if !found.contains(&name) {
                    found.push(name);
                }
            }
        }
        found
    }
}

/// Returns the extensions of the data files that a header can describe.
fn elements_of(extension: &str) -> impl Iterator<Item = &'static str> {
    let pairs = PAIRS.iter().filter(move |[_, header]| extension == *header);
    pairs.map(|[elements, _]| *elements)
}

/// Returns the extensions of the headers that can describe a data file.
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
    fn both_files_of_a_pair_are_named_from_one_of_them() {
        let pairs = LookedUpPairs::default();
        let array = Key::new("a").unwrap();
        let note =
            |ending: &str| pairs.note(&array, &FileEnding::parse(ending.as_bytes()).unwrap());
        note(".npy");
        note("@0.tif");
        assert!(pairs.endings(&array).is_empty());
        note(".mhd");
        note("@0.cf.img");
        note(".mhd");
        let expected = ["@0.cf.img", "@0.cf.hdr", ".mhd", ".raw"];
        assert_eq!(pairs.endings(&array), expected);
        // A header that follows the lookup of its data file adds no other data file.
        note(".raw");
        note(".hdr");
        let expected = ["@0.cf.img", "@0.cf.hdr", ".mhd", ".raw", ".hdr", ".nhdr"];
        assert_eq!(pairs.endings(&array), expected);
        assert!(pairs.endings(&Key::root()).is_empty());
    }

    #[test]
    fn few_names_are_kept() {
        let pairs = LookedUpPairs::default();
        let array = Key::new("a").unwrap();
        for number in 0..2 * MAX_NAMES {
            let ending = format!("@{number}.img");
            pairs.note(&array, &FileEnding::parse(ending.as_bytes()).unwrap());
        }
        let endings = pairs.endings(&array);
        assert_eq!(endings.len(), 2 * MAX_NAMES);
        assert_eq!(endings[0], format!("@{MAX_NAMES}.img"));
    }
}
