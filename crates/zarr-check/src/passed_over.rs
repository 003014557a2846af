//! Reports chunk data that are decoded leniently but that other readers may reject.

use std::iter;

use crate::finding::{Finding, document_of};
use crate::key_findings::chunk_heading;
use zarr_format::codec::PassedOver;
use zarr_format::model::Array;
use zarrfs_store::Key;

/// A decoded chunk.
pub(super) struct DecodedChunk<'a> {
    pub(super) key: &'a Key,
    pub(super) array: &'a Array,
    pub(super) indices: &'a [u64],
}

/// Returns findings for the faults of a chunk that its codecs tolerated.
pub(super) fn passed_over_findings(
    chunk: &DecodedChunk<'_>,
    passed_over: &PassedOver,
) -> impl Iterator<Item = Finding> + use<> {
    let document = document_of(Some(chunk.array.dialect));
    let found = trailing(chunk.key, passed_over)
        .chain(other_codec(chunk.key, passed_over))
        .chain(small_block(chunk, passed_over));
    found.map(move |finding| finding.by(document, chunk_heading(document)))
}

/// Reports bytes after the encoded data.
fn trailing(key: &Key, passed_over: &PassedOver) -> impl Iterator<Item = Finding> + use<> {
    let told = |count: u64, what: &str| {
        let end = if count == 1 { "" } else { "s" };
        let message =
            format!("{count} {what}{end} follow the encoded chunk, which some readers refuse");
        let finding = Finding::warning("chunk-trailing", key, message);
        (count > 0).then_some(finding)
    };
    let bytes = told(passed_over.bytes, "byte");
    bytes.into_iter().chain(told(passed_over.padding, "zero"))
}

/// Reports a stream in the wrapper of another codec: not all readers detect that.
fn other_codec(key: &Key, passed_over: &PassedOver) -> Option<Finding> {
    let (stated, other) = passed_over.wrapper?;
    let message = format!("the chunk is a {other} stream, and the metadata state {stated}");
    let finding = Finding::warning("chunk-other-codec", key, message);
    Some(match stated {
        "gzip" => finding.habit_of("z5py of 2020"),
        _ => finding,
    })
}

/// Reports an N5 block that lacks elements inside the dataset; outside, none are needed.
fn small_block(chunk: &DecodedChunk<'_>, passed_over: &PassedOver) -> Option<Finding> {
    let found = passed_over.block.as_ref()?;
    let array = chunk.array;
    let lengths = iter::zip(&array.shape, &array.chunk_shape);
    let needed: Vec<u64> = iter::zip(lengths, chunk.indices)
        .map(|((length, block), index)| {
            let start = index.saturating_mul(*block);
            length.saturating_sub(start).min(*block)
        })
        .collect();
    if iter::zip(found, &needed).all(|(found, needed)| found >= needed) {
        return None;
    }
    let message = format!(
        "the block has {found:?} elements, the dataset needs {needed:?}, and those that it lacks read as zeros"
    );
    Some(Finding::warning("block-too-small", chunk.key, message))
}
