//! Reads the positions along a dimension from its coordinate variable, and caches them.

use std::num::NonZero;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use crate::formats::coordinate_variable::{CoordinateMeaning, Line};
use crate::inspect::coordinates;
use crate::inspect::labels::Labels;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::request_context::RequestContext;

/// Maximum number of coordinate variables that are cached.
const MAX_LINES: NonZero<usize> = NonZero::new(1 << 10).unwrap();

/// The positions that were read from coordinate variables.
pub struct CoordinateLines {
    /// By the identifier of the array.
    known: Mutex<LruCache<u64, KnownLine>>,
}

/// The positions of one variable.
struct KnownLine {
    content: u64,
    /// The version of the documents: attributes scale the values.
    documents: u64,
    line: Line,
}

impl Default for CoordinateLines {
    fn default() -> CoordinateLines {
        CoordinateLines {
            known: Mutex::new(LruCache::new(MAX_LINES)),
        }
    }
}

impl CoordinateLines {
    /// Returns the positions of a variable. Fails if they cannot be read now; if they can never be read, the result
    /// is `Line::NoNumbers`.
    pub fn line(
        &self,
        context: &RequestContext,
        arrays: &Arrays,
        (entry, meaning): (&Arc<NodeEntry>, &CoordinateMeaning),
    ) -> Result<Line> {
        let Some(array) = entry.array() else {
            return Err(Error::invalid(&entry.path, "is not an array"));
        };
        let open = arrays.open(entry)?;
        // Taken before the values are read: if they change during the read, the cached line is not used again.
        let content = open.content(context)?;
        if let Some(content) = content
            && let Some(known) = self.known.lock().get(&open.id())
            && (known.content, known.documents) == (content, entry.version)
        {
            return Ok(known.line.clone());
        }
        context.check_may_wait()?;
        let values = coordinates::check_length(&entry.path, array);
        let line = match values.map(|()| coordinates::read(context, &open, array)) {
            Err(error) => Line::NoNumbers(error.to_string()),
            Ok(Ok(labels)) => line_of(&labels, meaning),
            Ok(Err(error)) if error.kind() == Kind::Unsupported => {
                Line::NoNumbers(error.to_string())
            }
            Ok(Err(error)) => return Err(error),
        };
        if let Some(content) = content {
            let known = KnownLine {
                content,
                documents: entry.version,
                line: line.clone(),
            };
            self.known.lock().put(open.id(), known);
        }
        Ok(line)
    }
}

/// Returns the positions of numeric labels.
fn line_of(labels: &Labels, meaning: &CoordinateMeaning) -> Line {
    let is_longitude = meaning.is_longitude();
    match labels {
        Labels::Integers(values) => {
            let values: Vec<f64> = values.iter().map(|&value| value as f64).collect();
            Line::of(&values, false, is_longitude)
        }
        Labels::Floats(values, is_single) => Line::of(values, *is_single, is_longitude),
        Labels::Texts(_) => Line::NoNumbers("it has texts".to_string()),
        Labels::Times(..) => Line::NoNumbers("it has times".to_string()),
    }
}
