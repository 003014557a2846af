//! Computes and caches the lengths of files that must be read to know them.
//!
//! A length is computed once for each content, and cached in memory and, with `--cache-dir`, on disk. It is valid only
//! for the present versions of all stored chunks of its file, and only for the metadata that it was computed with. A
//! change by another program is seen within the TTL of versions, like a change of the bytes themselves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use twox_hash::XxHash64;

use crate::array::OpenArray;
use crate::array::chunk_versions::VersionState;
use crate::array::stored_array::StoredArray;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Region;
use zarrfs_store::Version;
use zarrfs_store::layer::disk_cache::{EntryHeader, EntryKey};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};
use zarrfs_store::sync::pool::parallel_map;

/// The maximum number of lengths per array in memory.
const MAX_LENGTHS: usize = 1 << 12;

/// The number of chunks that are looked up at a time.
const BATCH: usize = 1 << 12;

/// The cached lengths of an array's files, by file name.
pub(super) struct FileLengths {
    array: Arc<StoredArray>,
    known: Mutex<HashMap<String, VersionedLength>>,
}

/// The length of a file in bytes, or the error that it is too large to be read; and the version of the chunks that it
/// was computed from.
#[derive(Clone)]
struct VersionedLength {
    version: Version,
    length: Result<u64>,
}

/// The content of the stored chunks of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionVersion {
    version: Version,
    /// Whether all versions are lasting (`Version::is_lasting`), so that lengths may be kept on disk.
    is_lasting: bool,
}

impl RegionVersion {
    /// The version of no chunks.
    const NONE: RegionVersion = RegionVersion {
        version: Version::NONE,
        is_lasting: true,
    };

    /// Returns the version of boxes of several arrays together. It is valid only while the program runs: entries on
    /// disk are found by the metadata of one array.
    pub fn of_all(parts: impl Iterator<Item = Result<RegionVersion>>) -> Result<RegionVersion> {
        let mut all = RegionVersion::NONE;
        for part in parts {
            all.add(Some(part?.version));
        }
        all.is_lasting = false;
        Ok(all)
    }

    fn add(&mut self, version: Option<Version>) {
        let present = version.map_or([0; 8], |version| version.number().to_le_bytes());
        let parts = [
            self.version.number().to_le_bytes(),
            u64::from(version.is_some()).to_le_bytes(),
            present,
        ];
        self.version = Version::numbered(XxHash64::oneshot(0, parts.as_flattened()));
        self.is_lasting &= version.is_none_or(Version::is_lasting);
    }
}

/// Returns the version of the elements that a file is made of.
pub type VersionOf<'a> = &'a dyn Fn(&RequestContext) -> Result<RegionVersion>;

/// The version of a region while its chunks are looked up.
struct VersionSum {
    sum: RegionVersion,
    batch: Vec<u64>,
    deadline: Instant,
}

impl OpenArray {
    /// Returns the version of the stored chunks under a box; asks the store for unknown versions. `TooLarge` if the box
    /// has too many elements without a fixed length, `Unavailable` if the store takes longer than a request may.
    pub fn region_version(
        &self,
        context: &RequestContext,
        region: &Region,
    ) -> Result<RegionVersion> {
        let decoder = self.decoder()?;
        if self.metadata.data_type.is_variable() {
            self.element_count(region)?;
        }
        let mut versions = VersionSum {
            sum: RegionVersion::NONE,
            batch: Vec::new(),
            deadline: self.engine.deadline(),
        };
        let mut outcome = Ok(());
        decoder.stored.visit(region, |chunk, _, _| {
            versions.batch.push(chunk.0);
            if versions.batch.len() == BATCH {
                outcome = self.add_batch(context, &mut versions);
            }
            outcome.is_ok()
        });
        outcome?;
        self.add_batch(context, &mut versions)?;
        Ok(versions.sum)
    }

    /// Adds the versions of some chunks, in order.
    fn add_batch(&self, context: &RequestContext, versions: &mut VersionSum) -> Result<()> {
        let chunks = std::mem::take(&mut versions.batch);
        let known = self.versions.lock();
        let state = |&chunk: &u64| (chunk, known.of(chunk));
        let states: Vec<_> = chunks.iter().map(state).collect();
        drop(known);
        let deadline = versions.deadline;
        let find = |(chunk, state)| match state {
            VersionState::Known(version) => Ok(version),
            _ if Instant::now() > deadline => {
                let why = "the versions of its chunks are not known in time";
                Err(Error::unavailable(&self.path, why))
            }
            VersionState::Unknown | VersionState::Stale => self.versions.fetch(context, chunk),
        };
        let are_known = |(_, state): &(u64, VersionState)| matches!(state, VersionState::Known(_));
        let threads = if states.iter().all(are_known) {
            1
        } else {
            self.engine.limits.fetches.max(1)
        };
        for version in parallel_map(threads, states, &find) {
            versions.sum.add(version?);
        }
        Ok(())
    }
}

impl FileLengths {
    /// Creates an empty cache.
    pub(super) fn new(array: Arc<StoredArray>) -> FileLengths {
        FileLengths {
            array,
            known: Mutex::default(),
        }
    }

    /// Returns the length of file `name`, which is computed from elements of the version `version_of`: the length that
    /// is known for the present content, or the result of `measure`. Concurrent callers measure once. If that takes
    /// longer than they wait, it still runs to its end, and a later caller finds the length.
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
                Ok(length) => self.note(&UNLIMITED, name, version_of, version, *length)?,
                // Computing this error again would take as long.
                Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::Unsupported) => {
                    self.remember(name, version, Err(error.clone()));
                }
                Err(_) => {}
            }
            length
        })
    }

    /// Returns the length that is cached for a version.
    fn known_length(&self, name: &str, version: RegionVersion) -> Option<Result<u64>> {
        let known = self.known.lock().get(name).cloned();
        if let Some(known) = known.filter(|known| known.version == version.version) {
            return Some(known.length);
        }
        let length = self.kept_length(name, version)?;
        self.remember(name, version, Ok(length));
        Some(Ok(length))
    }

    /// Records the length of file `name`, which was computed from elements of the version `version`, unless they have
    /// another version by now.
    pub(super) fn note(
        &self,
        context: &RequestContext,
        name: &str,
        version_of: VersionOf<'_>,
        version: RegionVersion,
        length: u64,
    ) -> Result<()> {
        if version_of(context)? == version {
            self.remember(name, version, Ok(length));
            self.keep_length(name, version, length);
        }
        Ok(())
    }

    fn remember(&self, name: &str, version: RegionVersion, length: Result<u64>) {
        let mut lengths = self.known.lock();
        if lengths.len() >= MAX_LENGTHS {
            lengths.clear();
        }
        let version = version.version;
        lengths.insert(name.to_string(), VersionedLength { version, length });
    }

    /// Returns the key of a length on disk: the file name, the version of the program, and the metadata.
    fn length_entry(&self, name: &str) -> EntryKey {
        let name = format!("{name} {}", env!("CARGO_PKG_VERSION"));
        let number = Version::of(name.as_bytes()).number();
        EntryKey::length(&self.array.path, number, self.array.document_version())
    }

    /// Returns a length from disk for a version, or `None` if it is missing or damaged.
    fn kept_length(&self, name: &str, version: RegionVersion) -> Option<u64> {
        let disk = self
            .array
            .engine
            .disk
            .as_ref()
            .filter(|_| version.is_lasting)?;
        let key = self.length_entry(name);
        let entry = disk.find(&key)?;
        if entry.header().version != version.version {
            return None;
        }
        let bytes = disk.read(&key, &entry, 0..entry.len())?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }

    fn keep_length(&self, name: &str, version: RegionVersion, length: u64) {
        let Some(disk) = self
            .array
            .engine
            .disk
            .as_ref()
            .filter(|_| version.is_lasting)
        else {
            return;
        };
        let bytes = length.to_le_bytes();
        let header = EntryHeader::now(version.version, bytes.len() as u64);
        disk.put(&self.length_entry(name), &header, &bytes);
    }
}
