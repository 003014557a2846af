//! Entries of an archive or a bucket that the store does not show, since they are no keys.

use crate::check::context::CheckContext;
use crate::check::finding::Finding;
use crate::check::key_findings::hidden;
use crate::error::printable;
use crate::store::{Key, NotShown, NotShownReason};

/// Returns a finding for each entry at or below a node that is not shown. Those of a bucket are known once it was listed.
pub(super) fn check(context: &CheckContext, top: &Key) -> Vec<Finding> {
    let entries = context.store().info().not_shown.all();
    let findings = entries.iter().filter_map(|entry| finding_of(entry, top));
    findings.collect()
}

fn finding_of(entry: &NotShown, top: &Key) -> Option<Finding> {
    let name = printable(&String::from_utf8_lossy(&entry.name));
    let Some(key) = &entry.key else {
        let expected = "names that are keys: plain paths without ..";
        let found = format!("the name {name}, which is not shown");
        let finding = Finding::error("entry-not-shown", top, expected, found);
        return top.is_root().then(|| finding.of_part(name));
    };
    key.below(top)?;
    match entry.why {
        NotShownReason::NoPath => None,
        NotShownReason::Special => Some(hidden(key, "a symbolic link or a special file")),
        NotShownReason::Replaced => {
            let found = "several, of which the last one counts";
            let finding = Finding::warning("entry-twice", key, "one entry of a name", found);
            Some(finding.habit_of("zarr-python, which replaces a key in an archive so,"))
        }
        NotShownReason::Respelled => {
            let expected = "names that are relative and have slashes, as APPNOTE 4.4.17.1 has them";
            let found = format!("the name {name}, under which other programs do not find the key");
            let finding = Finding::warning("entry-respelled", top, expected, found);
            Some(finding.of_part(name))
        }
    }
}
