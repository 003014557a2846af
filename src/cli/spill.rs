//! Parses where decoded chunks spill to disk.

use std::env;
use std::path::{Path, PathBuf};

use crate::cli::values;
use zarr_format::error::Result;
use zarrfs_array::array::SpillConfig;

/// The folder for spilled chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SpillChoice {
    /// The first usual folder in which a file can be created.
    #[default]
    Usual,
    Folder(PathBuf),
    Nowhere,
}

impl std::fmt::Display for SpillChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SpillChoice::Usual => f.write_str("auto"),
            SpillChoice::Folder(folder) => folder.display().fmt(f),
            SpillChoice::Nowhere => f.write_str("none"),
        }
    }
}

/// Parses `none`, `auto` or a folder.
pub(super) fn choice(text: &str) -> Result<SpillChoice> {
    match text {
        "none" => Ok(SpillChoice::Nowhere),
        "auto" => Ok(SpillChoice::Usual),
        folder => values::absolute(Path::new(folder)).map(SpillChoice::Folder),
    }
}

/// Returns the spill configuration; `cache_dir` is the folder of `--cache-dir`.
pub(super) fn config(choice: &SpillChoice, cache_dir: Option<&Path>) -> SpillConfig {
    let folders = match choice {
        SpillChoice::Usual => usual(cache_dir),
        SpillChoice::Folder(folder) => vec![folder.clone()],
        SpillChoice::Nowhere => Vec::new(),
    };
    SpillConfig {
        folders,
        // A spill file also takes at most half of the free space.
        limit: 64 << 30,
    }
}

fn usual(cache_dir: Option<&Path>) -> Vec<PathBuf> {
    let named = |name| env::var_os(name).filter(|value| !value.is_empty());
    let cache = named("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| env::home_dir().map(|home| home.join(".cache")));
    // The folder for large temporary files is /var/tmp (hier(7)).
    let temporary = named("TMPDIR").unwrap_or("/var/tmp".into());
    let folders = [
        cache_dir.map(Path::to_path_buf),
        cache,
        Some(temporary.into()),
    ];
    folders.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_or_none() {
        assert_eq!(choice("none").unwrap(), SpillChoice::Nowhere);
        let chosen = choice("/scratch").unwrap();
        assert_eq!(chosen.to_string(), "/scratch");
        let config = config(&chosen, Some(Path::new("/cache")));
        assert_eq!(config.folders, [Path::new("/scratch")]);
    }

    #[test]
    fn the_folder_of_the_cache_is_tried_first() {
        let spill = config(&SpillChoice::Usual, Some(Path::new("/cache")));
        assert_eq!(spill.folders[0], Path::new("/cache"));
        assert!(spill.folders.len() > 1);
        let none = config(&SpillChoice::Nowhere, None);
        assert_eq!(none.folders, Vec::<PathBuf>::new());
    }
}
