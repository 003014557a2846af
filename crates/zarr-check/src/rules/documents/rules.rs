//! Applies tables of rules to the members of a document.
//!
//! All faults of a document are found, not only the first. A rule is about one JSON member. If a known writer breaks a
//! rule and zarrfs can still read the document, the finding is a warning that names the writer.

use serde_json::{Map, Value};

use crate::finding::Finding;
use crate::spec::SpecSection;
use zarrfs_store::Key;

pub(crate) type Members = Map<String, Value>;

/// Whether the value of a member obeys its rule.
pub(crate) enum Verdict {
    /// The value is valid.
    Holds,
    /// The value breaks a MUST. The text is what the specification demands.
    Fails(String),
    /// The value breaks a SHOULD. The text is what the specification recommends.
    Discouraged(String),
    /// The value breaks a MUST, but Zarr libraries and zarrfs accept it. The text is what the specification demands.
    Tolerated(String),
    /// The value breaks a MUST, as values of a known writer do. The texts are the demand of the specification and the
    /// writer.
    Habit(String, &'static str),
}

/// What it means if a document lacks a member.
enum Absence {
    /// A missing member breaks the specification.
    Fails,
    /// A missing member breaks the specification, but the given writer is known to leave it out.
    Habit(&'static str),
    /// A missing member breaks the specification, unless the given member is present, which older versions had instead.
    FailsWithout(&'static str),
    /// A missing member is valid.
    Allowed,
}

/// A function that checks the value of a member. The second argument has all members of the document.
type CheckValue = fn(&Value, &Members) -> Verdict;

pub(crate) struct MemberRule {
    name: &'static str,
    absent: Absence,
    /// The section of the specification on the member; `None` for the section on the whole document.
    section: Option<SpecSection>,
    check: CheckValue,
}

/// Builds the rule for a JSON member that must be present.
pub(crate) const fn rule(name: &'static str, check: CheckValue) -> MemberRule {
    MemberRule {
        name,
        absent: Absence::Fails,
        section: None,
        check,
    }
}

/// Builds the rule for a JSON member that must be present unless the member `other` is.
pub(crate) const fn one_of(
    name: &'static str,
    other: &'static str,
    check: CheckValue,
) -> MemberRule {
    MemberRule {
        absent: Absence::FailsWithout(other),
        ..rule(name, check)
    }
}

pub(crate) const fn optional(name: &'static str, check: CheckValue) -> MemberRule {
    MemberRule {
        absent: Absence::Allowed,
        ..rule(name, check)
    }
}

/// Builds the rule for a JSON member that must be present, but that a known writer leaves out.
pub(crate) const fn left_out_by(
    writer: &'static str,
    name: &'static str,
    check: CheckValue,
) -> MemberRule {
    MemberRule {
        absent: Absence::Habit(writer),
        ..rule(name, check)
    }
}

impl MemberRule {
    /// Sets the section of the specification on the member, if the section on the whole document does not describe it.
    pub(crate) const fn in_section(self, section: SpecSection) -> MemberRule {
        MemberRule {
            section: Some(section),
            ..self
        }
    }

    /// Returns the finding about a document that lacks the member.
    fn absent(&self, key: &Key, members: &Members) -> Option<Finding> {
        let fact = format!("the member {} is missing", self.name);
        let finding = Finding::error("member-missing", key, fact);
        match self.absent {
            Absence::Allowed => None,
            Absence::Fails => Some(finding),
            Absence::FailsWithout(other) => (!members.contains_key(other)).then_some(finding),
            Absence::Habit(writer) => Some(finding.with_habit(writer)),
        }
    }
}

pub(crate) struct DocumentRules {
    /// The section of the specification on the whole document.
    pub(crate) section: SpecSection,
    pub(crate) members: &'static [MemberRule],
    /// The rule for members that the specification does not define, given a member's name and value.
    pub(crate) others: fn(&str, &Value) -> Verdict,
    /// The section of the specification on undefined members; `None` for the section on the whole document.
    pub(crate) others_section: Option<SpecSection>,
}

impl DocumentRules {
    pub(crate) fn apply(&self, key: &Key, members: &Members) -> Vec<Finding> {
        let mut findings = Vec::new();
        for rule in self.members {
            let section = rule.section.unwrap_or(self.section);
            let finding = match members.get(rule.name) {
                None => rule.absent(key, members),
                Some(value) => {
                    let fact = format!("{} is {}", rule.name, shortened(value));
                    let demand = Demand {
                        code: "member-invalid",
                        fact,
                        must: ", but must be ",
                        should: ", but should be ",
                    };
                    demand.finding((rule.check)(value, members), key)
                }
            };
            findings
                .extend(finding.map(|finding| finding.with_part(rule.name).with_section(section)));
        }
        let is_defined = |name: &str| self.members.iter().any(|rule| rule.name == name);
        for (name, value) in members.iter().filter(|(name, _)| !is_defined(name)) {
            let section = self.others_section.unwrap_or(self.section);
            let text = shortened(value);
            let demand = Demand {
                code: "member-unknown",
                fact: format!("unknown member {name} ({text})"),
                must: "; ",
                should: "; ",
            };
            let finding = demand.finding((self.others)(name, value), key);
            findings.extend(finding.map(|finding| finding.with_part(name).with_section(section)));
        }
        findings
    }
}

/// The words from which the message about a broken rule is built.
struct Demand {
    code: &'static str,
    /// The words about the stored value in a message.
    fact: String,
    /// The words between the stored value and the demand of a MUST.
    must: &'static str,
    /// The words between the stored value and the recommendation of a SHOULD.
    should: &'static str,
}

impl Demand {
    /// Returns the finding about a broken rule, or `None` if the rule holds.
    fn finding(&self, verdict: Verdict, key: &Key) -> Option<Finding> {
        let Demand {
            code,
            fact,
            must,
            should,
        } = self;
        let must = |demand| format!("{fact}{must}{demand}");
        Some(match verdict {
            Verdict::Holds => return None,
            Verdict::Fails(demand) => Finding::error(code, key, must(demand)),
            Verdict::Discouraged(demand) => {
                Finding::warning(code, key, format!("{fact}{should}{demand}"))
            }
            Verdict::Tolerated(demand) => Finding::warning(code, key, must(demand)),
            Verdict::Habit(demand, writer) => {
                Finding::error(code, key, must(demand)).with_habit(writer)
            }
        })
    }
}

/// Returns a JSON value as text, cut off with `...` after 100 bytes.
pub(crate) fn shortened(value: &Value) -> String {
    let mut text = value.to_string();
    let limit = 100;
    if text.len() > limit {
        let end = (0..=limit).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}
