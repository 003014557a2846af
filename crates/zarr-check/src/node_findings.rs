//! Collects the findings of one node in bounded memory.
//!
//! Of many findings with the same fault code, only the first ones are listed, with the number of the others. Findings
//! are sorted by key, so that two checks of the same store print the same text.

use std::collections::BTreeMap;
use std::mem::take;

use crate::finding::{Finding, Severity};

use zarr_format::error::{Error, Result};
use zarrfs_store::Key;

/// Maximum number of findings with the same fault code that are listed for a node.
const MAX_LISTED: usize = 100;

#[derive(Default)]
pub(crate) struct NodeFindings {
    by_code: BTreeMap<(Severity, &'static str), AlikeFindings>,
}

/// The findings of one node with the same fault code.
#[derive(Default)]
struct AlikeFindings {
    listed: Vec<Finding>,
    dropped: u64,
    /// Whether all findings with this code have the same message, including the findings that were dropped.
    is_one_message: bool,
}

impl AlikeFindings {
    /// Removes duplicate findings, and drops all but the first `most` findings in the order of keys.
    fn cut(&mut self, most: usize) {
        self.listed
            .sort_by(|a, b| (&a.key, &a.part, &a.message).cmp(&(&b.key, &b.part, &b.message)));
        self.listed.dedup();
        let spare = self.listed.len().saturating_sub(most);
        self.dropped += spare as u64;
        self.listed.truncate(most);
    }
}

impl NodeFindings {
    pub(crate) fn add(&mut self, finding: Finding) {
        let alike = self
            .by_code
            .entry((finding.severity, finding.code))
            .or_default();
        alike.is_one_message = match alike.listed.first() {
            Some(first) => alike.is_one_message && first.message == finding.message,
            None => alike.dropped == 0,
        };
        alike.listed.push(finding);
        // Sorting many findings at once costs less than sorting after each new finding.
        if alike.listed.len() >= 2 * MAX_LISTED {
            alike.cut(MAX_LISTED);
        }
    }

    pub(crate) fn extend(&mut self, others: impl IntoIterator<Item = Finding>) {
        others.into_iter().for_each(|finding| self.add(finding));
    }

    /// Adds findings of the same node that were collected separately, and adds the numbers of findings that were
    /// dropped.
    pub(crate) fn merge(&mut self, others: NodeFindings) {
        for (code, alike) in others.by_code {
            self.extend(alike.listed);
            let own = self.by_code.entry(code).or_default();
            own.dropped += alike.dropped;
            own.is_one_message &= alike.is_one_message;
        }
    }

    /// If all inspected chunks of an array have the same finding, replaces their findings by one about the array.
    /// `chunks` is the number of stored chunks. `inspected` is the maximum number of chunks that were inspected, or
    /// `None` if all were.
    pub(crate) fn merge_chunks(&mut self, array: &Key, chunks: u64, inspected: Option<u64>) {
        for alike in self.by_code.values_mut() {
            alike.cut(MAX_LISTED);
            let count = alike.listed.len() as u64 + alike.dropped;
            // One or two findings about chunks do not show that the whole array has the fault.
            let Some(first) = alike.listed.first().filter(|_| count >= 3) else {
                continue;
            };
            let is_limited = first.code == "chunk-corrupt" && inspected == Some(count);
            if count != chunks && !is_limited {
                continue;
            }
            let is_of_chunk = first.code.starts_with("chunk-") && first.key != *array;
            if !alike.is_one_message || !is_of_chunk || !first.part.is_empty() {
                continue;
            }
            let which = if count == chunks {
                format!("all {chunks} chunks")
            } else {
                format!("all {count} chunks that were read, of {chunks} stored")
            };
            let message = format!("{which}, such as {}: {}", first.key, first.message);
            let mut merged = first.clone();
            merged.key = array.clone();
            merged.message = message;
            alike.listed = vec![merged];
            alike.dropped = 0;
        }
    }

    /// Removes the findings with the given code whose keys satisfy `is_kind`. Returns the first of their keys, and the
    /// number of findings, with all dropped findings of the code, since their keys are unknown.
    pub(crate) fn take(
        &mut self,
        code: &str,
        is_kind: &dyn Fn(&Key) -> bool,
    ) -> Option<(Key, u64)> {
        let mut first = None;
        let mut count = 0;
        let alike = self.by_code.iter_mut();
        for (_, alike) in alike.filter(|((_, other), _)| *other == code) {
            alike.cut(MAX_LISTED);
            let (taken, others): (Vec<_>, Vec<_>) = take(&mut alike.listed)
                .into_iter()
                .partition(|finding| is_kind(&finding.key));
            alike.listed = others;
            if let Some(finding) = taken.first() {
                count += taken.len() as u64 + take(&mut alike.dropped);
                first.get_or_insert(finding.key.clone());
            }
        }
        first.map(|first| (first, count))
    }

    pub(crate) fn check_listed(&self) -> Result<()> {
        let is_unlisted = |finding: &&Finding| finding.code == "folder-unlisted";
        let mut listed = self.by_code.values().flat_map(|alike| &alike.listed);
        match listed.find(is_unlisted) {
            Some(finding) => Err(Error::unavailable(&finding.key, &finding.message)),
            None => Ok(()),
        }
    }

    pub(crate) fn has_error(&self) -> bool {
        self.by_code
            .keys()
            .any(|(severity, _)| *severity == Severity::Error)
    }

    pub(crate) fn has_error_of(&self, part: &str) -> bool {
        let mut errors = self.by_code.iter();
        errors.any(|((severity, code), alike)| {
            let mut listed = alike.listed.iter();
            *severity == Severity::Error
                && *code == "member-invalid"
                && listed.any(|finding| finding.part == part)
        })
    }

    /// Returns all findings, sorted by key, each with the number of findings that it represents. If findings of a code
    /// were dropped, one more finding tells their number.
    pub(crate) fn sorted(self, node: &Key) -> Vec<(Finding, u64)> {
        let mut all = Vec::new();
        let mut more = Vec::new();
        for ((severity, code), mut alike) in self.by_code {
            alike.cut(MAX_LISTED);
            all.extend(alike.listed.into_iter().map(|finding| (finding, 1)));
            if alike.dropped > 0 {
                let message = format!(
                    "{} more findings of this kind ({code}) not listed",
                    alike.dropped
                );
                let finding = Finding::new(severity, code, node, message);
                more.push((finding, alike.dropped));
            }
        }
        all.sort_by(|(a, _), (b, _)| {
            (&a.key, a.severity, &a.part).cmp(&(&b.key, b.severity, &b.part))
        });
        all.extend(more);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_returns_the_first_key_and_the_count_of_all_findings() {
        let mut findings = NodeFindings::default();
        for number in 0..1000 {
            let key = Key::new(format!("a/{number}")).unwrap();
            findings.add(Finding::warning("orphan-key", &key, "a key"));
        }
        assert_eq!(findings.take("leftover", &|_| true), None);
        let taken = findings.take("orphan-key", &|_| true);
        assert_eq!(taken, Some((Key::new("a/0").unwrap(), 1000)));
        assert!(findings.sorted(&Key::root()).is_empty());
    }

    #[test]
    fn findings_of_one_code_are_listed_up_to_a_limit_and_counted() {
        let mut findings = NodeFindings::default();
        for number in (0..100_000_u32).rev() {
            let key = Key::new(format!("a/{number:06}")).unwrap();
            findings.add(Finding::warning("orphan-key", &key, "a key"));
        }
        assert!(
            findings
                .by_code
                .values()
                .all(|alike| alike.listed.len() < 2 * MAX_LISTED)
        );
        let sorted = findings.sorted(&Key::new("a").unwrap());
        assert_eq!(sorted.len(), MAX_LISTED + 1);
        assert_eq!(sorted[0].0.key.as_bytes(), b"a/000000");
        assert_eq!(sorted[99].0.key.as_bytes(), b"a/000099");
        assert_eq!(sorted.iter().map(|(_, count)| count).sum::<u64>(), 100_000);
    }
}
