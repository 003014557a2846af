//! Computes and caches the lengths of files whose length depends on the elements.
//!
//! To know the length, all elements must be read. It is computed once for each content, and cached in memory and, with
//! `--cache-dir`, on disk. A cached length is used only while all stored chunks of the file have the versions, and the
//! array has the metadata, that the length was computed from. A change by another program is seen within the TTL of
//! versions, like a change of the file's bytes.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::array::stored_array::StoredArray;
use zarr_format::error::{Kind, Result};
use zarrfs_store::Version;
use zarrfs_store::layer::disk_cache::{CacheNamespace, EntryHeader, EntryKey};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

pub(super) struct FileLengths {
    array: Arc<StoredArray>,
    /// The version of the elements that each length was computed from, and the length in bytes, or the error that the
    /// file cannot be read.
    known: Mutex<HashMap<String, (Version, Result<u64>)>>,
}

/// A function that returns the present version of the elements that a file shows.
pub type VersionOf<'a> = &'a dyn Fn(&RequestContext) -> Result<Version>;

impl FileLengths {
    pub(super) fn new(array: Arc<StoredArray>) -> FileLengths {
        FileLengths {
            array,
            known: Mutex::default(),
        }
    }

    /// Returns the length of file `name`: the cached length if the elements have the version that it was computed from,
    /// or else the result of `measure`. `version_of` returns the present version of the elements. Concurrent callers
    /// share one call of `measure`. If the call takes longer than they wait, it still runs to its end, and a later
    /// caller finds the length.
    pub(super) fn length_of(
        &self,
        context: &RequestContext,
        name: &str,
        version_of: VersionOf<'_>,
        measure: impl FnOnce(&RequestContext) -> Result<u64>,
    ) -> Result<u64> {
        let key = (self.array.id, name.to_string());
        let flights = &self.array.engine.lengths;
        flights.run(context, &key, self.array.engine.deadline(), || {
            let version = version_of(&UNLIMITED)?;
            if let Some(length) = self.known_length(name, version) {
                return length;
            }
            let length = measure(&UNLIMITED);
            match &length {
                Ok(length) => self.record(&UNLIMITED, name, version_of, version, *length)?,
                // The error is cached too, because computing the length again would take as long and fail again.
                Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::Unsupported) => {
                    self.remember(name, version, Err(error.clone()));
                }
                Err(_) => {}
            }
            length
        })
    }

    /// Returns the cached length of a file, from memory or disk, if it was computed from this version of the elements.
    fn known_length(&self, name: &str, version: Version) -> Option<Result<u64>> {
        if let Some((known, length)) = self.known.lock().get(name)
            && *known == version
        {
            return Some(length.clone());
        }
        let length = self.read_length(name, version)?;
        self.remember(name, version, Ok(length));
        Some(Ok(length))
    }

    /// Records the length of file `name`, which was computed from elements of the version `version`, unless the
    /// elements have another version by now.
    pub(super) fn record(
        &self,
        context: &RequestContext,
        name: &str,
        version_of: VersionOf<'_>,
        version: Version,
        length: u64,
    ) -> Result<()> {
        if version_of(context)? == version {
            self.remember(name, version, Ok(length));
            self.write_length(name, version, length);
        }
        Ok(())
    }

    fn remember(&self, name: &str, version: Version, length: Result<u64>) {
        let mut lengths = self.known.lock();
        // The number of lengths is limited, because programs can open any number of slices, each under its own file
        // name.
        if lengths.len() >= 1 << 12 {
            lengths.clear();
        }
        lengths.insert(name.to_string(), (version, length));
    }

    /// Returns the disk cache and the key under which it has a file length. The key has the file name, the version of
    /// the program, and the version of the metadata. `None` if there is no disk cache, or if the version of the
    /// elements is valid only in this process.
    fn disk_entry(&self, name: &str, version: Version) -> Option<(&CacheNamespace, EntryKey)> {
        let disk = self.array.engine.disk.as_ref();
        let disk = disk.filter(|_| version.is_lasting())?;
        let name = format!("{name} {}", env!("CARGO_PKG_VERSION"));
        let number = Version::of(name.as_bytes()).number();
        let key = EntryKey::length(&self.array.path, number, self.array.document_version());
        Some((disk, key))
    }

    /// Reads a file length from the disk cache; `None` if it is missing or damaged, or is of another version.
    fn read_length(&self, name: &str, version: Version) -> Option<u64> {
        let (disk, key) = self.disk_entry(name, version)?;
        let entry = disk.find(&key)?;
        if entry.header().version != version {
            return None;
        }
        let bytes = disk.read(&key, &entry, 0..entry.len())?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }

    fn write_length(&self, name: &str, version: Version, length: u64) {
        if let Some((disk, key)) = self.disk_entry(name, version) {
            let bytes = length.to_le_bytes();
            let header = EntryHeader::now(version, bytes.len() as u64);
            disk.put(&key, &header, &bytes);
        }
    }
}
