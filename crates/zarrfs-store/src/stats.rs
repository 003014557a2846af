//! Counters of a mount, their JSON form, and the failure log.
//!
//! Counting is one relaxed atomic addition. The JSON text has a fixed length, so that `stat` and `read` of `stats.json`
//! agree about its size.

use std::fmt::Write;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::failure_log::FailureLog;

/// A counter or gauge of a mount, as a field of `Stats`.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n` to the counter.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Subtracts `n` from the gauge.
    pub fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Relaxed);
    }

    /// Sets the gauge to `n`.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// Returns the present value of the counter.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// All counters of a mount. The last word of a counter's name is its unit.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: Counter,)+
            /// The recent failures of the mount.
            pub failures: FailureLog,
        }

        impl Stats {
            /// Returns the names and values of all counters, in the order of declaration.
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get())),+]
            }
        }
    };
}

counters! {
    /// FUSE lookup requests.
    lookup_requests,
    /// FUSE getattr requests.
    getattr_requests,
    /// FUSE open requests.
    open_requests,
    /// FUSE readdir requests.
    readdir_requests,
    /// FUSE read requests.
    read_requests,
    /// Bytes returned by FUSE read requests.
    read_bytes,
    /// FUSE read requests that the event loop answered from memory, without another thread.
    read_immediate_requests,
    /// FUSE write requests.
    write_requests,
    /// Bytes in FUSE write requests.
    write_bytes,
    /// FUSE requests that ended with an errno other than ENOENT.
    error_requests,
    /// Requests to the store for a whole object or a range.
    store_get_requests,
    /// Bytes received from the store.
    store_get_bytes,
    /// Requests to the store for the size and version of an object.
    store_head_requests,
    /// Requests to the store for listings.
    store_list_requests,
    /// Requests to the store to put an object.
    store_put_requests,
    /// Bytes of the objects that were put to the store.
    store_put_bytes,
    /// Requests to the store to erase an object.
    store_erase_requests,
    /// HTTP requests sent, retries included.
    http_requests,
    /// Time spent waiting for the store.
    store_nanoseconds,
    /// Disk cache (`--cache-dir`): objects and ranges found.
    disk_hit_requests,
    /// Disk cache: bytes of the objects and ranges found.
    disk_hit_bytes,
    /// Disk cache: objects and ranges not found.
    disk_miss_requests,
    /// Disk cache: bytes written.
    disk_written_bytes,
    /// Disk cache: entries evicted.
    disk_evicted_entries,
    /// Disk cache: entries with a wrong checksum.
    disk_corrupt_entries,
    /// Disk cache: bytes in the cache folder, which all processes share.
    disk_held_bytes,
    /// Disk cache: the limit that `--cache-size` sets.
    disk_limit_bytes,
    /// Decoded chunks spilled from memory to disk (`--spill`).
    spill_written_chunks,
    /// Decoded chunks read back from the spill file.
    spill_hit_chunks,
    /// Decoded chunks found in memory.
    cache_hit_chunks,
    /// Decoded chunks not found in memory.
    cache_miss_chunks,
    /// Decoded chunks evicted from memory.
    cache_evicted_chunks,
    /// Chunks decoded, repetitions included.
    decoded_chunks,
    /// Chunks decoded again after they were evicted from memory.
    decoded_again_chunks,
    /// Bytes of all decoded chunks.
    decoded_bytes,
    /// Bytes of read answers that were copied, because they span several chunks. An answer from one chunk is a slice of
    /// the decoded chunk.
    copied_bytes,
    /// Chunks encoded and written to the store.
    encoded_chunks,
    /// Missing chunks, which read as the fill value.
    missing_chunks,
    /// Chunks prefetched.
    prefetched_chunks,
    /// Memory in use now, mostly decoded chunks and requests in flight. Freed buffers in the pool do not count.
    memory_held_bytes,
    /// The most memory that was in use at once.
    memory_peak_bytes,
    /// The limit that `--memory` sets.
    memory_budget_bytes,
}

impl Stats {
    /// Returns the counters as JSON, one per line, each number padded to 20 columns.
    pub fn to_json(&self) -> String {
        let mut out = String::from("{\n");
        let counters = self.snapshot();
        for (place, (name, number)) in counters.iter().enumerate() {
            let comma = if place + 1 == counters.len() { "" } else { "," };
            // `writeln!` to a `String` cannot fail.
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
    fn the_json_text_has_a_fixed_length_and_parses() {
        let stats = Stats::default();
        let empty = stats.to_json();
        stats.read_bytes.add(u64::MAX);
        let full = stats.to_json();
        assert_eq!(empty.len(), full.len());
        let parsed: serde_json::Value = serde_json::from_str(&full).unwrap();
        assert_eq!(parsed["read_bytes"], u64::MAX);
    }
}
