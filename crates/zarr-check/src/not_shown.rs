//! Reports entries of archives and buckets that are hidden because they are not keys.

use crate::context::CheckContext;
use crate::finding::Finding;
use crate::key_findings::hidden;
use zarr_format::error::printable;
use zarrfs_store::{HiddenEntry, HiddenReason, Key};

/// Returns a finding for each hidden entry at or below a node. In a bucket, they are only known after a listing.
pub(super) fn check(context: &CheckContext, top: &Key) -> Vec<Finding> {
    let entries = context.store().info().hidden_entries.all();
    let findings = entries.iter().filter_map(|entry| finding_of(entry, top));
    findings.collect()
}

fn finding_of(entry: &HiddenEntry, top: &Key) -> Option<Finding> {
    let name = printable(&String::from_utf8_lossy(&entry.name));
    let Some(key) = &entry.key else {
        let message =
            format!("the name {name} is no key, a plain path without .., and is not shown");
        let finding = Finding::error("entry-not-shown", top, message);
        return top.is_root().then(|| finding.of_part(name));
    };
    key.below(top)?;
    match entry.why {
        HiddenReason::NoPath => None,
        HiddenReason::Special => Some(hidden(key, "a symbolic link or a special file")),
        HiddenReason::Replaced => {
            let message = "several entries have this name, and the last one counts";
            let finding = Finding::warning("entry-twice", key, message);
            Some(finding.habit_of("zarr-python"))
        }
        HiddenReason::Respelled => {
            let message = format!(
                "the name {name} is not relative with slashes, as APPNOTE 4.4.17.1 has it, so that other programs do \
                 not find the key"
            );
            let finding = Finding::warning("entry-respelled", top, message);
            Some(finding.of_part(name))
        }
    }
}
