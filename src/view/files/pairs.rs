//! Files that come in pairs, a header and the elements: both are listed from when one of them was looked up.
//!
//! GDAL opens one, and looks for the other in the listing of the directory. A listing has neither before, so that a
//! recursive program meets each array once.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use zarrfs_export::inspect::file_ending::FileEnding;
use zarrfs_store::Key;

/// The extensions of elements and of a header that is read with them.
const PAIRS: [[&str; 2]; 4] = [
    ["img", "hdr"],
    ["raw", "hdr"],
    ["raw", "nhdr"],
    ["raw", "mhd"],
];

/// The most arrays of which files of pairs are listed, and the most names of each that were looked up.
const MAX_ARRAYS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
const MAX_NAMES: usize = 16;

/// The files of pairs that were looked up last, which all clones of a view share.
pub(super) struct LookedUpPairs {
    /// For each array what follows its name in those of the files, the last one last.
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
    /// Notes that a file of an array is there and was looked up.
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

    /// Returns what follows the name of an array in those of the files that were looked up, and of those that each makes a
    /// pair with; each once.
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
            // A header whose elements were looked up was looked for since they were.
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

/// Returns the extensions of the elements that a header is read with.
fn elements_of(extension: &str) -> impl Iterator<Item = &'static str> {
    let pairs = PAIRS.iter().filter(move |[_, header]| extension == *header);
    pairs.map(|[elements, _]| *elements)
}

/// Returns the extensions of the headers that elements are read with.
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
        // A header that is looked for beside its elements has no others.
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
