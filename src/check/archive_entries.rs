//! Entries of an archive that the store does not show: other programs show them, or take another one of two.

use crate::check::context::CheckContext;
use crate::check::finding::Finding;
use crate::check::findings::NodeFindings;
use crate::check::key_findings::hidden;
use crate::error::printable;
use crate::store::{Key, NotShown, NotShownReason};

/// Adds the entries of an archive that are not shown at or below a node.
pub(super) fn check(context: &CheckContext, top: &Key, findings: &mut NodeFindings) {
    let entries = context.store().info().not_shown.iter();
    findings.extend(entries.filter_map(|entry| finding_of(entry, top)));
}

fn finding_of(entry: &NotShown, top: &Key) -> Option<Finding> {
    let name = printable(&String::from_utf8_lossy(&entry.name));
    let key = Key::new(entry.name.as_slice());
    let key = key.ok().filter(|_| entry.why != NotShownReason::NoPath);
    let Some(key) = key else {
        let expected = "names that are keys: plain paths without .. and backslashes";
        let found = format!("the name {name}, which is not shown");
        let finding = Finding::error("entry-not-shown", top, expected, found);
        return top.is_root().then(|| finding.of_part(name));
    };
    key.below(top)?;
    Some(match entry.why {
        NotShownReason::Special => hidden(&key, "a symbolic link or a special file"),
        NotShownReason::Replaced => {
            let found = "several, of which the last one counts";
            Finding::warning("entry-twice", &key, "one entry of a name", found)
                .habit_of("zarr-python, which replaces a key in an archive so,")
        }
        NotShownReason::NoPath | NotShownReason::BehindFolder => {
            let expected = "a file or a folder of a name";
            let found = "both; the file is not shown";
            Finding::error("entry-not-shown", &key, expected, found)
        }
    })
}
