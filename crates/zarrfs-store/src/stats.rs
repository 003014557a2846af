//! Counters of a mount and their text form, with its failures beside them.
//!
//! Counting is one relaxed atomic addition; the text has the same length whatever the numbers are, so the
//! size of `stats.json` never changes between stat and read.

use std::fmt::Write;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::failures::FailureLog;

/// A counter or gauge; its name in `Stats` says what is counted.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Takes `n` away again; for gauges.
    pub fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Relaxed);
    }

    /// Sets the number.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Everything that is counted; the unit is the last word of a name.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: Counter,)+
            /// What failed last.
            pub failures: FailureLog,
        }

        impl Stats {
            /// Returns names and numbers in the order of declaration.
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get())),+]
            }
        }
    };
}

counters! {
    /// FUSE requests for a name.
    lookup_requests,
    /// FUSE requests for attributes.
    getattr_requests,
    /// FUSE requests to open a file.
    open_requests,
    /// FUSE requests for a part of a directory.
    readdir_requests,
    /// FUSE requests for bytes.
    read_requests,
    /// Bytes given to readers.
    read_bytes,
    /// Reads answered in the event loop, out of memory.
    read_immediate_requests,
    /// FUSE requests to write bytes.
    write_requests,
    /// Bytes that came with them.
    write_bytes,
    /// Requests that ended with an errno other than ENOENT.
    error_requests,
    /// Requests to the store for a whole object or a range.
    store_get_requests,
    /// Bytes that the store sent.
    store_get_bytes,
    /// Requests to the store for the size and version of an object.
    store_head_requests,
    /// Requests to the store for names.
    store_list_requests,
    /// Requests to the store to put an object.
    store_put_requests,
    /// Bytes of the objects that were put.
    store_put_bytes,
    /// Requests to the store to remove an object.
    store_erase_requests,
    /// HTTP requests sent, retries included.
    http_requests,
    /// Time spent waiting for the store.
    store_nanoseconds,
    /// Objects and ranges found in `--cache-dir`.
    disk_hit_requests,
    /// Bytes of these objects and ranges.
    disk_hit_bytes,
    /// Objects and ranges not found there.
    disk_miss_requests,
    /// Bytes written there.
    disk_written_bytes,
    /// Files evicted from there.
    disk_evicted_entries,
    /// Files there whose checksum was wrong.
    disk_corrupt_entries,
    /// Bytes held there by all processes together.
    disk_held_bytes,
    /// The limit that `--cache-size` sets.
    disk_limit_bytes,
    /// Decoded chunks that left the memory for `--spill`.
    spill_written_chunks,
    /// Decoded chunks read back from there.
    spill_hit_chunks,
    /// Decoded chunks found in memory.
    cache_hit_chunks,
    /// Decoded chunks not found in memory.
    cache_miss_chunks,
    /// Decoded chunks evicted from memory.
    cache_evicted_chunks,
    /// Chunks decoded.
    decoded_chunks,
    /// How many of them had been decoded before: memory had no room for them meanwhile.
    decoded_again_chunks,
    /// Decoded bytes.
    decoded_bytes,
    /// Bytes of answers that were put together out of chunks; the others are parts of chunks as they were decoded.
    copied_bytes,
    /// Chunks encoded and stored.
    encoded_chunks,
    /// Chunks that are not stored and read as the fill value.
    missing_chunks,
    /// Chunks requested ahead of their readers.
    prefetched_chunks,
    /// Memory held now, above all decoded chunks and chunks in flight; buffers that are kept to be used again are not in it.
    memory_held_bytes,
    /// The most memory held at any time.
    memory_peak_bytes,
    /// The limit that `--memory` sets.
    memory_budget_bytes,
}

impl Stats {
    /// Returns the counters as JSON, one a line, each number padded to 20 columns.
    pub fn to_json(&self) -> String {
        let mut out = String::from("{\n");
        let counters = self.snapshot();
        for (place, (name, number)) in counters.iter().enumerate() {
            let comma = if place + 1 == counters.len() { "" } else { "," };
            // Writing to a String cannot fail.
            let _ = writeln!(out, "  \"{name}\": {number:>20}{comma}");
        }
        out.push_str("}\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_its_length_and_parses() {
        let stats = Stats::default();
        let empty = stats.to_json();
        stats.read_bytes.add(u64::MAX);
        let full = stats.to_json();
        assert_eq!(empty.len(), full.len());
        let parsed: serde_json::Value = serde_json::from_str(&full).unwrap();
        assert_eq!(parsed["read_bytes"], u64::MAX);
    }
}
