//! Opens reference files as stores: kerchunk's JSON, and fsspec's folders of Parquet files.
//!
//! A reference file states, for each key of a hierarchy, a range of another object, such as a netCDF file, or contains
//! the bytes. A file may have millions of references, so it is read piece by piece into a compressed table within the
//! memory budget. The Parquet files of a folder are read when their references are needed.

use std::sync::Arc;

use crate::backend::current::{Checked, Current};
use crate::backend::reference::targets::Targets;
use crate::backend::reference::{ReferenceStore, ReferenceTable};
use crate::request_context::RequestContext;
use crate::sync::budget::MemoryBudget;
use crate::{HiddenEntries, Key, Store, StoreInfo};
use zarr_format::error::{Error, Kind, Result};

mod file;
mod folder;
mod json;
mod pages;
mod parquet;
mod records;
mod references;
mod table;
mod targets;
mod template;
#[cfg(test)]
mod tests;

use file::ReferenceFile;
use folder::{FolderSource, ParquetFolder};
use json::{JsonReader, WholeText};
use targets::TargetBase;

/// Number of bytes of a JSON file that are read to tell whether it is a reference file.
pub(crate) const HEAD: usize = 4096;

/// Where a kerchunk reference file or a folder of Parquet files is.
pub(crate) struct ReferenceLocation<'a> {
    /// The store that contains the reference file or is the folder of Parquet files.
    pub(crate) base: Arc<dyn Store>,
    /// The path or URL of the folder against which relative URLs in the references are resolved.
    pub(crate) folder: &'a str,
    /// The group in the references that is shown as the root of the store.
    pub(crate) inner: Key,
    pub(crate) display_name: &'a str,
}

/// Which objects references may lead to, and the resources for reading them.
pub(crate) struct ReferenceOptions {
    /// Opens the objects that references lead to, if the user allows it.
    pub(crate) targets: Arc<Targets>,
    pub(crate) memory: Arc<MemoryBudget>,
    /// Maximum number of keys whose bytes are requested concurrently.
    pub(crate) concurrency: usize,
}

/// Opens the object `key` as a reference file. The error is `NotFound` if the file or the group `inner` is missing, and
/// `Corrupt` if the file is no reference file.
pub(crate) fn open_file(
    context: &RequestContext,
    location: ReferenceLocation<'_>,
    key: &Key,
    options: ReferenceOptions,
) -> Result<Arc<dyn Store>> {
    let hidden = Arc::new(HiddenEntries::default());
    let source = ReferenceFile {
        base: location.base.clone(),
        key: key.clone(),
        inner: location.inner.clone(),
        folder: TargetBase::new(location.folder),
        memory: options.memory.clone(),
        hidden: hidden.clone(),
        display_name: location.display_name.to_string(),
    };
    let (opened, stamp) = location
        .base
        .info()
        .ask(context, |context| source.read(context));
    let first = opened?;
    if !first.find(context, &Key::root())?.is_prefix {
        let inner = &location.inner;
        let why = format!("no directory {inner} in the reference file");
        return Err(Error::new(Kind::NotFound, location.display_name, why));
    }
    let info = info(&*location.base, hidden, options.concurrency);
    let checked = Checked::new(first, stamp.request_time);
    let current = Current::new(source, checked, info.archive_generation.clone());
    let store = ReferenceStore::new(current, options.targets, info).with_blocks(&options.memory);
    Ok(Arc::new(store))
}

/// Opens the store `location.base` as a folder of Parquet files. Returns `None` if it is an ordinary Zarr store.
pub(crate) fn open_folder(
    context: &RequestContext,
    location: ReferenceLocation<'_>,
    options: ReferenceOptions,
) -> Result<Option<Arc<dyn Store>>> {
    let hidden = Arc::new(HiddenEntries::default());
    let folder = Arc::new(ParquetFolder {
        base: location.base.clone(),
        targets: TargetBase::new(location.folder).parent(),
        memory: options.memory.clone(),
        hidden: hidden.clone(),
        display_name: location.display_name.to_string(),
    });
    let (opened, stamp) = location
        .base
        .info()
        .ask(context, |context| folder.read(context));
    let Some(first) = opened? else {
        return Ok(None);
    };
    let info = info(&*location.base, hidden, options.concurrency);
    let checked = Checked::new(first, stamp.request_time);
    let current = Current::new(
        FolderSource(folder),
        checked,
        info.archive_generation.clone(),
    );
    let store = ReferenceStore::new(current, options.targets, info).with_blocks(&options.memory);
    Ok(Some(Arc::new(store)))
}

/// Returns the properties of a store of references that are read from the store `base`.
fn info(base: &dyn Store, hidden_entries: Arc<HiddenEntries>, concurrency: usize) -> StoreInfo {
    let base = base.info();
    StoreInfo {
        concurrency: concurrency.max(base.concurrency),
        server: base.server.clone(),
        clock: base.clock.clone(),
        unchangeable: Some(
            "reference files are read-only: use --cow CHANGES for changes, and 'zarrfs commit --to' to write a new \
             store",
        ),
        hidden_entries,
        ..StoreInfo::new(base.freshness)
    }
}

/// What a JSON file contains, judged by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonContent {
    /// Kerchunk references.
    References,
    /// A Zarr metadata document.
    Document,
    /// Another JSON object, or too few bytes to tell.
    Unknown,
    /// The file does not begin with a JSON object.
    NoObject,
}

/// Tells what a JSON file contains by its first bytes.
pub(crate) fn json_content(head: &[u8]) -> JsonContent {
    let mut reader = JsonReader::new(WholeText(head.to_vec()), HEAD as u64);
    if reader.expect(b'{').is_err() {
        return JsonContent::NoObject;
    }
    let (mut is_first, mut name, mut value) = (true, Vec::new(), Vec::new());
    while let Ok(true) = reader.next_member(&mut is_first, &mut name) {
        let Ok(begins) = reader.begins() else {
            break;
        };
        let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let names_metadata = matches!(
            last,
            b".zgroup" | b".zarray" | b".zattrs" | b".zmetadata" | b"zarr.json"
        );
        match (name.as_slice(), begins) {
            (b"zarr_format" | b"zarr_consolidated_format" | b"node_type", _) => {
                return JsonContent::Document;
            }
            (b"refs", b'{') => return JsonContent::References,
            (_, b'"' | b'{') if names_metadata => return JsonContent::References,
            _ => {}
        }
        if reader.value(&mut value).is_err() {
            break;
        }
    }
    JsonContent::Unknown
}
