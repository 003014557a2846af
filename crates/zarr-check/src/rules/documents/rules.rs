//! Applies tables of rules to the members of a document.
//!
//! All faults of a document are found, not only the first. A rule is about one member, and usually looks at no other.
//! If a known writer breaks a rule and zarrfs reads the document all the same, the finding is a warning that names the
//! writer.

use serde_json::{Map, Value};

use crate::finding::Finding;
use crate::spec::SpecSection;
use zarrfs_store::Key;

/// The members of a document.
pub(crate) type Members = Map<String, Value>;

/// The result of a rule.
pub(crate) enum Verdict {
    /// The value is valid.
    Holds,
    /// The value breaks a MUST. The text is what the specification demands.
    Fails(String),
    /// The value breaks a SHOULD. The text is what the specification recommends.
    Discouraged(String),
    /// The value breaks a MUST, but Zarr libraries and zarrfs read it. The text is what the specification demands.
    Tolerated(String),
    /// The value breaks a MUST as a known writer does. The texts are what the specification demands, and the writer.
    Habit(String, &'static str),
}

/// What it means if the member is missing.
enum Absence {
    /// It breaks the specification.
    Fails,
    /// It breaks the specification, but this known writer leaves out the member.
    Habit(&'static str),
    /// It breaks the specification, unless this member is present, which older versions had instead.
    FailsWithout(&'static str),
    /// The member is optional.
    Allowed,
}

/// Checks the value of a member. The second argument has all members of the document.
type CheckValue = fn(&Value, &Members) -> Verdict;

/// The rule for one member.
pub(crate) struct MemberRule {
    name: &'static str,
    absent: Absence,
    /// The section on the member; `None` for the section on the document.
    section: Option<SpecSection>,
    check: CheckValue,
}

/// Builds the rule for a mandatory member.
pub(crate) const fn rule(name: &'static str, check: CheckValue) -> MemberRule {
    MemberRule {
        name,
        absent: Absence::Fails,
        section: None,
        check,
    }
}

/// Builds the rule for a member that is mandatory unless `other` is present.
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

/// Builds the rule for an optional member.
pub(crate) const fn optional(name: &'static str, check: CheckValue) -> MemberRule {
    MemberRule {
        absent: Absence::Allowed,
        ..rule(name, check)
    }
}

/// Builds the rule for a mandatory member that a known writer leaves out.
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
    /// Sets the section on the member, for members that the section on the document does not describe.
    pub(crate) const fn in_section(self, section: SpecSection) -> MemberRule {
        MemberRule {
            section: Some(section),
            ..self
        }
    }

    /// Returns the finding about a document in which the member is missing.
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

/// The rules for a document.
pub(crate) struct DocumentRules {
    /// The section on the document.
    pub(crate) section: SpecSection,
    pub(crate) members: &'static [MemberRule],
    /// The rule for members that the specification does not define.
    pub(crate) others: fn(&str, &Value) -> Verdict,
    /// The section on undefined members; `None` for the section on the document.
    pub(crate) others_section: Option<SpecSection>,
}

impl DocumentRules {
    /// Applies the rules to a document. Returns findings about all faults.
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

/// The parts of a message about a broken rule.
struct Demand {
    code: &'static str,
    /// What is stored.
    fact: String,
    /// The words between `fact` and what a MUST demands.
    must: &'static str,
    /// The words between `fact` and what a SHOULD recommends.
    should: &'static str,
}

impl Demand {
    /// Returns the finding for a verdict, or `None` if the rule holds.
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

/// Returns a value as text. If it has more than 100 bytes, it is cut off and ends with `...`.
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
