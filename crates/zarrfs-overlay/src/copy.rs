//! Copies a whole store to another: chunks first, then their metadata.
//!
//! An interrupted copy can be run again. An object that the target already has with the same bytes is skipped; one with
//! other bytes is a conflict.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::commit::plan::phase;
use crate::commit::{Outcome, ProgressFn, parallel_keys};
use crate::listing::list_recursive;
use crate::{content, upper};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{Condition, Key, PutBody, Reader, Store};

/// Maximum size in bytes of an object that is copied in memory; longer objects go through a temporary file.
const MAX_IN_MEMORY: usize = 16 << 20;

/// Copies all objects of a store to a store that is empty or has an interrupted copy. If objects conflict, they are
/// returned in the outcome, and no metadata is copied.
pub fn copy_all(
    context: &RequestContext,
    from: &dyn Store,
    to: &dyn Store,
    progress: &ProgressFn,
) -> Result<Outcome> {
    let stored = list_recursive(context, from, &Key::root())?.objects;
    let mut keys: Vec<Key> = stored.into_iter().map(|(key, _)| key).collect();
    keys.sort_by_key(phase);
    let total = keys.len();
    progress(0, total);
    let done = AtomicUsize::new(0);
    let mut outcome = Outcome::default();
    for keys in keys.chunk_by(|a, b| phase(a) == phase(b)) {
        let copy = |key: Key| {
            let copied = copy_key(context, from, to, &key);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
            (key, copied)
        };
        for (key, copied) in parallel_map(
            parallel_keys(from).max(parallel_keys(to)),
            keys.to_vec(),
            &copy,
        ) {
            match copied {
                Ok(bytes) => {
                    outcome.put += 1;
                    outcome.bytes += bytes;
                }
                Err(error) if error.kind() == Kind::Changed => {
                    let why = "already exists with different content";
                    outcome.conflicts.push((key, why.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        // Do not copy metadata after a conflict, because readers would then find an array without some of its chunks.
        if !outcome.conflicts.is_empty() {
            break;
        }
    }
    Ok(outcome)
}

/// Copies an object between stores; returns its length in bytes. Fails with `Changed` if the target has an object with
/// other bytes.
fn copy_key(context: &RequestContext, from: &dyn Store, to: &dyn Store, key: &Key) -> Result<u64> {
    let reader = from.open(context, key, None)?;
    let size = reader.meta(context)?.size;
    let put = |body: PutBody<'_>| match to.put(context, key, body, &Condition::Absent) {
        Err(error) if error.kind() == Kind::Changed => {
            if content::is_same(context, &*reader, &*to.open(context, key, None)?)? {
                Ok(())
            } else {
                Err(error)
            }
        }
        done => done.map(|_| ()),
    };
    match usize::try_from(size) {
        Ok(size) if size <= MAX_IN_MEMORY => {
            put(PutBody::Bytes(&reader.read_at(context, 0, size)?))?
        }
        _ => {
            let file = spooled(context, &*reader).map_err(|error| error.about(key))?;
            put(PutBody::File(&file, size))?;
        }
    }
    Ok(size)
}

/// Copies an object into an unnamed temporary file.
fn spooled(context: &RequestContext, reader: &dyn Reader) -> Result<File> {
    let failed = |error| Error::os("a temporary file", error);
    let mut file = upper::unnamed_file().map_err(failed)?;
    let mut at = 0;
    loop {
        let bytes = reader.read_at(context, at, MAX_IN_MEMORY)?;
        if bytes.is_empty() {
            return Ok(file);
        }
        file.write_all(&bytes).map_err(failed)?;
        at += bytes.len() as u64;
    }
}
