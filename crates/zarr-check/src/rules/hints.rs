//! Suggests improvements of layouts that are valid but cost time, memory or space.

use crate::finding::Finding;
use crate::walk::array_keys::ChunkStats;
use zarr_format::codec::Pipeline;
use zarr_format::grid::ChunkIndex;
use zarr_format::model::{Array, bytes_of};
use zarrfs_array::array::OpenArray;
use zarrfs_store::Key;

pub(crate) fn check(open: &OpenArray, stats: &ChunkStats) -> Vec<Finding> {
    let array = open.array();
    let pipeline = open.pipeline_of(ChunkIndex(0)).ok();
    let mut findings = Vec::new();
    findings.extend(chunk_sizes(open, array, pipeline.as_deref()));
    if let Some(pipeline) = pipeline.as_deref() {
        findings.extend(shards(open, pipeline));
        findings.extend(compression(open, pipeline, stats));
    }
    findings
}

/// Reports chunks that are too large, and many chunks that are small.
fn chunk_sizes(open: &OpenArray, array: &Array, pipeline: Option<&Pipeline>) -> Option<Finding> {
    let element = array.element_size().ok()?;
    let path = open.path();
    let Ok(stored) = bytes_of(&array.chunk_shape, element) else {
        return Some(large_chunks(path, "more than 2^63"));
    };
    let decoded = match pipeline {
        Some(pipeline) => pipeline.chunk_bytes() as u64,
        None => stored,
    };
    // To read one element, all bytes of its chunk must be read.
    if decoded > 1 << 30 {
        return Some(large_chunks(path, &decoded.to_string()));
    }
    let count = open.stored_grid().map_or(0, zarr_format::grid::Grid::len);
    // For small chunks, requests or opened files take longer than reading the bytes.
    (count >= 1_000_000 && stored <= 16 << 10).then(|| {
        let message = format!("{count} chunks of only {stored} bytes are slow to read and write");
        let remedy = "write larger chunks, or use shards";
        Finding::advice("small-chunks", path, message).with_remedy(remedy)
    })
}

fn large_chunks(path: &Key, bytes: &str) -> Finding {
    let message =
        format!("a decoded chunk has {bytes} bytes; reading any element needs all of them");
    Finding::advice("large-chunks", path, message).with_remedy("write chunks of at most 1 GiB")
}

/// Reports shards with only one inner chunk.
fn shards(open: &OpenArray, pipeline: &Pipeline) -> Option<Finding> {
    let is_single = pipeline.shards().first()?.count() <= 1;
    is_single.then(|| {
        let message = "each shard has only one inner chunk; sharding has no benefit";
        Finding::advice("shard-without-gain", open.path(), message)
            .with_remedy("use several inner chunks per shard, or no shards")
    })
}

/// Reports a compressor that makes the chunks of an array no smaller.
fn compression(open: &OpenArray, pipeline: &Pipeline, stats: &ChunkStats) -> Option<Finding> {
    let array = open.array();
    if !pipeline.shards().is_empty() || !pipeline.has_compressors() {
        return None;
    }
    let chunk = bytes_of(&array.chunk_shape, array.element_size().ok()?).ok()?;
    let decoded = u128::from(chunk) * u128::from(stats.measured);
    let stored = u128::from(stats.bytes);
    // If only a few bytes are stored, their compression ratio is not representative.
    let is_idle = decoded >= 64 << 10 && stored * 100 >= decoded * 98;
    is_idle.then(|| {
        let codec = array.codecs.last().map_or("", |codec| codec.name.as_str());
        let message = format!(
            "{codec} does not make the chunks smaller: {decoded} bytes are stored as {stored}"
        );
        Finding::advice("compressor-idle", open.path(), message)
            .with_remedy("write the array without it, or with another codec")
    })
}
