//! Describes one finding: its message, key, remedy and section of a specification.
//!
//! Each finding has a code that does not change between versions, so that programs can recognize and count findings.
//! Text from a store, such as a key, is only escaped when the finding is displayed.

use serde_json::{Value, json};

use crate::spec::SpecSection;
use zarr_format::error::printable;
use zarrfs_store::Key;

/// How serious a finding of a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Error: a MUST of the specification is violated, or data are lost.
    Error,
    /// Warning: a SHOULD of the specification is violated, or a known writer violates a MUST in a way that common
    /// readers accept.
    Warning,
    /// Advice: the store is valid, but something could be better.
    Advice,
}

impl Severity {
    /// Returns the severity as a lower-case word.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Advice => "advice",
        }
    }
}

/// Indentation of the lines after the first line when a finding is displayed.
pub const INDENT: &str = "    ";

/// A fault or advice that a check reports about one key of a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Whether the finding is an error, a warning or advice.
    pub severity: Severity,
    /// The code that programs recognize the finding by: words joined by `-`, one of `CODES`.
    pub code: &'static str,
    /// The key of the document, chunk or folder that the finding is about, or the path of the node.
    pub key: Key,
    /// The JSON member of the document, or the part of the chunk, that the finding is about. Empty if the finding is
    /// about the whole key.
    pub part: String,
    /// The message: what is wrong and why it matters, without a full stop.
    pub message: String,
    /// How to repair the fault, as an instruction. Empty if the message implies the repair, or if only the user can
    /// know it.
    pub remedy: String,
    /// The section of the specification that the fault violates, or `None` if no specification mentions the fault.
    pub section: Option<SpecSection>,
    /// The name of the writer that is known to cause the fault, or `None`.
    pub habit: Option<&'static str>,
}

impl Finding {
    pub(crate) fn new(
        severity: Severity,
        code: &'static str,
        key: &Key,
        message: impl Into<String>,
    ) -> Finding {
        debug_assert!(CODES.contains(&code), "{code} is not in the table");
        Finding {
            severity,
            code,
            key: key.clone(),
            part: String::new(),
            message: message.into(),
            remedy: String::new(),
            section: None,
            habit: None,
        }
    }

    pub(crate) fn error(code: &'static str, key: &Key, message: impl Into<String>) -> Finding {
        Finding::new(Severity::Error, code, key, message)
    }

    pub(crate) fn warning(code: &'static str, key: &Key, message: impl Into<String>) -> Finding {
        Finding::new(Severity::Warning, code, key, message)
    }

    pub(crate) fn advice(code: &'static str, key: &Key, message: impl Into<String>) -> Finding {
        Finding::new(Severity::Advice, code, key, message)
    }

    pub(crate) fn with_section(mut self, section: impl Into<Option<SpecSection>>) -> Finding {
        self.section = section.into();
        self
    }

    pub(crate) fn with_remedy(mut self, remedy: impl Into<String>) -> Finding {
        self.remedy = remedy.into();
        self
    }

    pub(crate) fn with_part(mut self, part: impl Into<String>) -> Finding {
        self.part = part.into();
        self
    }

    /// Names the writer that is known to cause the fault, and turns an error into a warning.
    pub(crate) fn with_habit(mut self, writer: &'static str) -> Finding {
        self.habit = Some(writer);
        self.severity = self.severity.max(Severity::Warning);
        self
    }

    /// Returns the finding as text: a line with the fault, and indented lines with the remedy and the section. Control
    /// characters are escaped, so that text from a store cannot control the terminal.
    pub fn to_text(&self) -> String {
        let (word, key) = (self.severity.word(), &self.key);
        let mut text = format!("{word}: {key}: {}", printable(&self.message));
        if let Some(habit) = self.habit {
            text.push_str(&format!(" (known deviation of {habit})"));
        }
        if !self.remedy.is_empty() {
            text.push_str(&format!("\n{INDENT}{}", printable(&self.remedy)));
        }
        if let Some(SpecSection { document, heading }) = self.section {
            text.push_str(&format!("\n{INDENT}see {document}, \"{heading}\""));
        }
        text
    }

    /// Returns the finding as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "severity": self.severity.word(),
            "code": self.code,
            "key": String::from_utf8_lossy(self.key.as_bytes()),
            "part": (!self.part.is_empty()).then_some(&self.part),
            "message": self.message,
            "remedy": (!self.remedy.is_empty()).then_some(&self.remedy),
            "specification": self.section.map(|section| section.document),
            "section": self.section.map(|section| section.heading),
            "habit": self.habit,
        })
    }
}

/// All codes of findings, in the order of the manual. The meaning of a published code never changes.
pub const CODES: [&str; 85] = [
    // Codes of faults in metadata documents.
    "not-json",
    "not-an-object",
    "strict-json",
    "byte-order-mark",
    "member-missing",
    "member-invalid",
    "member-unknown",
    "member-twice",
    "document-unreadable",
    "document-is-folder",
    "document-miscased",
    "attributes-unreadable",
    "attribute-invalid",
    "dimension-names-missing",
    "dimension-lengths-differ",
    "image-path-missing",
    "image-axes-differ",
    "image-levels-unordered",
    "variable-missing",
    "table-part-missing",
    "table-lengths-differ",
    // Codes of faults in arrays and groups.
    "node-unreadable",
    "node-not-supported",
    "node-in-array",
    "nodes-collide",
    "group-implied",
    "dialect-differs",
    "codecs-impossible",
    "not-decodable",
    "chunk-too-large",
    "array-too-large",
    "too-deep",
    "too-many-children",
    "no-store",
    "store-unlisted",
    // Codes of faults in names.
    "name-reserved",
    "name-not-allowed",
    "name-not-recommended",
    "name-not-portable",
    "names-differ-in-case",
    "names-differ-in-form",
    "key-too-long",
    // Codes of faults in the keys of a folder.
    "orphan-key",
    "orphan-folder",
    "empty-folder",
    "leftover",
    "special-file",
    "entry-not-shown",
    "entry-twice",
    "entry-respelled",
    "folder-unlisted",
    "chunk-outside",
    "chunk-is-folder",
    "chunks-undescribed",
    "separator-not-stated",
    "separator-differs",
    "key-encoding-differs",
    // Codes of faults in symbolic links.
    "link-dangling",
    "link-leaves-store",
    "link-in-circle",
    "link-to-folder",
    // Codes of faults in consolidated metadata.
    "consolidated-differs",
    "consolidated-extra",
    "consolidated-missing",
    "consolidated-unreadable",
    "consolidated-too-many",
    // Codes of faults in chunks and shards.
    "chunks-missing",
    "chunk-empty",
    "chunk-length",
    "chunk-corrupt",
    "chunk-trailing",
    "chunk-other-codec",
    "block-too-small",
    "chunk-unreadable",
    "shard-index",
    "shard-bounds",
    "shard-overlap",
    "shard-unused",
    // Codes of advice.
    "small-chunks",
    "large-chunks",
    "shard-without-gain",
    "compressor-idle",
    "not-consolidated",
    "ozx-layout",
    "view-without-node",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_printed_with_remedy_and_section_and_escaped() {
        let key = Key::new(b"a\x1b/zarr.json".to_vec()).unwrap();
        let finding = Finding::error("member-invalid", &key, "zarr_format is \u{1b}[2J")
            .with_part("zarr_format")
            .with_remedy("write \u{1b}3")
            .with_habit("X")
            .with_section(crate::spec::Spec::V3.section("Array metadata"));
        assert_eq!(
            finding.to_text(),
            "warning: a\\u{1b}/zarr.json: zarr_format is \\u{1b}[2J (known deviation of X)\n    \
             write \\u{1b}3\n    see Zarr v3 core 3.1, \"Array metadata\""
        );
    }

    #[test]
    fn a_known_deviation_of_a_writer_is_a_warning_not_an_error() {
        let habit = Finding::error("member-unknown", &Key::root(), "").with_habit("netcdf-c");
        assert_eq!(habit.severity, Severity::Warning);
        let advice = Finding::advice("small-chunks", &Key::root(), "").with_habit("x");
        assert_eq!(advice.severity, Severity::Advice);
    }
}
