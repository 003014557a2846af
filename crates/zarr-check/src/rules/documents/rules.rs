//! Applies tables of rules to the members of a document.
//!
//! All faults of a document are found, not only the first. A rule covers one member, usually without regard to the
//! others. A violation that this program accepts, because a known writer makes it, is a warning that names the
//! writer.

use serde_json::{Map, Value};

use crate::finding::{Finding, SpecSection};
use zarrfs_store::Key;

/// The members of a document.
pub(crate) type Members = Map<String, Value>;

/// The result of a rule.
pub(crate) enum Verdict {
    /// The value is valid.
    Holds,
    /// The value breaks a MUST; has the demand of the specification.
    Fails(String),
    /// The value breaks a SHOULD; has the recommendation of the specification.
    Discouraged(String),
    /// The value breaks a MUST, but Zarr libraries and this program read it; has the demand of the specification.
    Tolerated(String),
    /// The value breaks a MUST in the way of a known writer; has the demand of the specification, and the writer.
    Habit(String, &'static str),
}

/// The meaning of a missing member.
enum Absence {
    /// The specification demands it.
    Fails,
    /// The specification demands it, but a known writer leaves it out.
    Habit(&'static str),
    /// The specification demands it, unless this other member of older versions is present.
    FailsWithout(&'static str),
    /// The specification does not demand it.
    Allowed,
}

/// Checks the value of a member; also receives all members of the document.
pub(crate) type CheckValue = fn(&Value, &Members) -> Verdict;

/// The rule for one member.
pub(crate) struct MemberRule {
    name: &'static str,
    absent: Absence,
    section: SpecSection,
    check: CheckValue,
}

/// Builds the rule for a mandatory member.
pub(crate) const fn rule(
    name: &'static str,
    section: SpecSection,
    check: CheckValue,
) -> MemberRule {
    let absent = Absence::Fails;
    MemberRule {
        name,
        absent,
        section,
        check,
    }
}

/// Builds the rule for a member that is mandatory unless `other` is present.
pub(crate) const fn one_of(
    name: &'static str,
    other: &'static str,
    section: SpecSection,
    check: CheckValue,
) -> MemberRule {
    let absent = Absence::FailsWithout(other);
    MemberRule {
        name,
        absent,
        section,
        check,
    }
}

/// Builds the rule for an optional member.
pub(crate) const fn optional(
    name: &'static str,
    section: SpecSection,
    check: CheckValue,
) -> MemberRule {
    let absent = Absence::Allowed;
    MemberRule {
        name,
        absent,
        section,
        check,
    }
}

/// Builds the rule for a mandatory member that a known writer leaves out.
pub(crate) const fn left_out_by(
    writer: &'static str,
    name: &'static str,
    section: SpecSection,
    check: CheckValue,
) -> MemberRule {
    let absent = Absence::Habit(writer);
    MemberRule {
        name,
        absent,
        section,
        check,
    }
}

/// The rules for a document.
pub(crate) struct DocumentRules {
    pub(crate) members: &'static [MemberRule],
    /// The rule for members that the specification does not define, and its section.
    pub(crate) others: fn(&str, &Value) -> Verdict,
    pub(crate) others_section: SpecSection,
}

/// Maximum length of a displayed value, in bytes.
const MAX_SHOWN: usize = 100;

/// Applies the rules to a document; returns all faults.
pub(crate) fn apply(rules: &DocumentRules, key: &Key, members: &Members) -> Vec<Finding> {
    let mut found = Vec::new();
    for rule in rules.members {
        found.extend(match members.get(rule.name) {
            None => absent(rule, key, members),
            Some(value) => {
                let verdict = (rule.check)(value, members);
                let code = ("member-invalid", rule.section);
                let fact = format!("{} is {}; it", rule.name, shown(value));
                judged(verdict, code, key, rule.name, &fact, "be")
            }
        });
    }
    let is_defined = |name: &str| rules.members.iter().any(|rule| rule.name == name);
    for (name, value) in members.iter().filter(|(name, _)| !is_defined(name)) {
        let verdict = (rules.others)(name, value);
        let value = shown(value);
        let fact =
            format!("the text does not define the member {name}, which is {value}; the document");
        let code = ("member-unknown", rules.others_section);
        found.extend(judged(verdict, code, key, name, &fact, "have"));
    }
    found
}

/// Returns the finding about a missing member.
fn absent(rule: &MemberRule, key: &Key, members: &Members) -> Option<Finding> {
    let SpecSection { document, heading } = rule.section;
    let fact = format!(
        "the document has no member {}, which it must have",
        rule.name
    );
    let finding = Finding::error("member-missing", key, fact);
    let finding = finding.of_part(rule.name).by(document, heading);
    match rule.absent {
        Absence::Allowed => None,
        Absence::Fails => Some(finding),
        Absence::FailsWithout(other) => (!members.contains_key(other)).then_some(finding),
        Absence::Habit(writer) => Some(finding.habit_of(writer)),
    }
}

/// Returns the finding for a verdict. `fact` ends with the subject of the demand, and `verb` is its verb.
fn judged(
    verdict: Verdict,
    (code, SpecSection { document, heading }): (&'static str, SpecSection),
    key: &Key,
    part: &str,
    fact: &str,
    verb: &str,
) -> Option<Finding> {
    let must = |demand| format!("{fact} must {verb} {demand}");
    let finding = match verdict {
        Verdict::Holds => return None,
        Verdict::Fails(demand) => Finding::error(code, key, must(demand)),
        Verdict::Discouraged(demand) => {
            Finding::warning(code, key, format!("{fact} should {verb} {demand}"))
        }
        Verdict::Tolerated(demand) => Finding::warning(code, key, must(demand)),
        Verdict::Habit(demand, writer) => Finding::error(code, key, must(demand)).habit_of(writer),
    };
    Some(finding.of_part(part).by(document, heading))
}

/// Returns a value as text of at most `MAX_SHOWN` bytes, and `...` if it was longer.
pub(crate) fn shown(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > MAX_SHOWN {
        let end = (0..=MAX_SHOWN)
            .rev()
            .find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}
