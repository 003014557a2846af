//! Formats that earlier versions had, and their replacements.

use zarr_format::error::{Error, Kind};

/// A format that zarrfs no longer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedFormat {
    /// The ending of its file names, without the dot.
    pub extension: &'static str,
    /// The replacement.
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
    removed("cdf5.nc", ".nc4, or .nc if its types are enough"),
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
    /// Returns the removed format with this extension, or `None` if there is none.
    pub fn of_extension(extension: &str) -> Option<RemovedFormat> {
        let mut all = REMOVED.into_iter();
        all.find(|format| format.extension == extension)
    }

    /// Returns the removed format that ends a file name, or `None` if there is none.
    pub fn of_name(name: &str) -> Option<RemovedFormat> {
        let ends = |format: &RemovedFormat| {
            let stem = name.strip_suffix(format.extension);
            stem.is_some_and(|stem| stem.ends_with('.'))
        };
        REMOVED.into_iter().find(ends)
    }

    /// Returns the error for a file name or a format name that uses it.
    pub fn error(self, subject: impl std::fmt::Display) -> Error {
        let RemovedFormat { extension, instead } = self;
        let why = format!("zarrfs has no .{extension} files any more; use {instead}");
        Error::new(Kind::Removed, subject, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{FORMATS, GROUP_FORMATS};

    #[test]
    fn no_format_is_removed_and_still_there() {
        for format in REMOVED {
            let extension = format.extension;
            assert!(FORMATS.iter().all(|known| known.extension != extension));
            let mut of_groups = GROUP_FORMATS.iter();
            assert!(of_groups.all(|known| known.extension != extension));
        }
    }

    #[test]
    fn a_name_is_of_the_format_that_it_ends_with() {
        let extension = |name| RemovedFormat::of_name(name).map(|format| format.extension);
        assert_eq!(extension("a@0,:.cf.f.raw"), Some("f.raw"));
        assert_eq!(extension("a.cdf5.nc"), Some("cdf5.nc"));
        for name in ["a.raw", "a.nc", "wav", "a.WAV", "a.wav/b", ""] {
            assert_eq!(extension(name), None, "{name}");
        }
    }
}
