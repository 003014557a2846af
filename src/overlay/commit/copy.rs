//! Copies a whole store into another: chunks first, then the metadata that names them. A copy that was cut is run
//! again: what the other store has already, byte for byte, is not sent twice; anything else there is a conflict.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::plan::phase;
use super::{Outcome, PARALLEL_KEYS, ProgressFn};
use crate::error::{Kind, Result};
use crate::overlay::below::stored_below;
use crate::overlay::content;
use crate::store::{Condition, Key, PutBody, Reader, Store};
use crate::sync::pool::parallel_map;

/// How much of an object is in memory at a time, in bytes; longer ones go by way of a file.
const PIECE: usize = 16 << 20;

/// Copies every key of a store into one that is empty, or that a copy which was cut has left.
pub fn copy_all(from: &dyn Store, to: &dyn Store, progress: &ProgressFn) -> Result<Outcome> {
    let stored = stored_below(from, &Key::root())?;
    let mut keys: Vec<Key> = stored.into_iter().map(|(key, _)| key).collect();
    keys.sort_by_key(phase);
    let total = keys.len();
    let done = AtomicUsize::new(0);
    let mut outcome = Outcome::default();
    for keys in keys.chunk_by(|a, b| phase(a) == phase(b)) {
        let copy = |key: Key| {
            let copied = copy_key(from, to, &key);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
            (key, copied)
        };
        for (key, copied) in parallel_map(PARALLEL_KEYS, keys.to_vec(), &copy) {
            match copied {
                Ok(bytes) => {
                    outcome.put += 1;
                    outcome.bytes += bytes;
                }
                Err(error) if error.kind() == Kind::Changed => {
                    let why = "is there already, with another content";
                    outcome.conflicts.push((key, why.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        // What names chunks that are not there is not copied.
        if !outcome.conflicts.is_empty() {
            break;
        }
    }
    Ok(outcome)
}

fn copy_key(from: &dyn Store, to: &dyn Store, key: &Key) -> Result<u64> {
    let reader = from.open(key, None)?;
    let size = reader.meta()?.size;
    let put = |body: PutBody<'_>| match to.put(key, body, &Condition::Absent) {
        Err(error) if error.kind() == Kind::Changed => {
            match content::is_same(&*reader, &*to.open(key, None)?)? {
                true => Ok(()),
                false => Err(error),
            }
        }
        done => done.map(|_| ()),
    };
    match usize::try_from(size) {
        Ok(size) if size <= PIECE => put(PutBody::Bytes(&reader.read_at(0, size)?))?,
        _ => {
            let file = spooled(&*reader).map_err(|error| error.about(key))?;
            put(PutBody::File(&file, size))?;
        }
    }
    Ok(size)
}

/// Returns a nameless file with an object's bytes.
fn spooled(reader: &dyn Reader) -> Result<std::fs::File> {
    use std::io::Write;
    let failed = |error| crate::error::Error::os("a temporary file", error);
    let mut file = crate::overlay::upper::nameless().map_err(failed)?;
    let mut at = 0;
    loop {
        let bytes = reader.read_at(at, PIECE)?;
        if bytes.is_empty() {
            return Ok(file);
        }
        file.write_all(&bytes).map_err(failed)?;
        at += bytes.len() as u64;
    }
}
