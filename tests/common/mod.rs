//! What several tests need: the shared folder, stores written by hand, files read through a view.
#![allow(dead_code, unreachable_pub)]

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use zarrfs::error::Result;
use zarrfs::stats::Stats;
use zarrfs::store::Key;
use zarrfs::view::View;
use zarrfs::view::faces::Face;
use zarrfs::view::faces::Faces;
use zarrfs::view::faces::FacesConfig;
use zarrfs::view::faces::open_faces;

/// Returns a folder that only the project's own machines have; without it the test says so and is skipped,
/// but where `CI` is set it fails.
pub fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared")
        .join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "{} is missing",
        path.display()
    );
    println!("skipped: {} is not here", path.display());
    None
}

/// Unpacks every archive of the corpus into a folder.
pub fn unpack_corpus(corpus: &Path, into: &Path) {
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".tar.gz") {
            let done = Command::new("tar")
                .arg("xzf")
                .arg(&path)
                .arg("-C")
                .arg(into)
                .status()
                .unwrap();
            assert!(done.success(), "{}", path.display());
        }
    }
}

/// Opens the views of a store with small limits.
pub fn open(source: &Path) -> Result<(Faces, Arc<Stats>)> {
    open_with(source, 256 << 20)
}

/// Opens the views of a store with a memory budget.
pub fn open_with(source: &Path, memory: u64) -> Result<(Faces, Arc<Stats>)> {
    let stats = Arc::new(Stats::default());
    let config = FacesConfig {
        source: source.to_string_lossy().into_owned(),
        formats: vec!["npy".to_string(), "raw".to_string()],
        memory,
        max_chunk: 64 << 20,
        timeout: Duration::from_secs(20),
        follow_symlinks: false,
        options: Vec::new(),
    };
    Ok((open_faces(&config, &stats)?, stats))
}

/// Returns the files view of a store.
pub fn files(source: &Path) -> Arc<dyn View> {
    open(source).unwrap().0.face(Face::Files)
}

/// Reads a whole file of a view, piece by piece.
pub fn read(view: &Arc<dyn View>, path: &str) -> Result<Vec<u8>> {
    let key = Key::new(path)?;
    let size = view.lookup(&key)?.map_or(0, |attr| attr.size);
    let file = view.open(&key)?.file;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size {
        // An odd length, so that pieces begin anywhere.
        let part = file.read_at(bytes.len() as u64, 70_000)?;
        assert!(!part.is_empty(), "{path} ends at {} of {size}", bytes.len());
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}
