//! Rules about the members of a document, as tables, and what applies them: every fault of a document is found, not only
//! the first one.
//!
//! A rule says what a text demands of one member, whatever the others are. What the program reads all the same, because
//! a known writer has it, is a warning that names the writer.

use serde_json::{Map, Value};

use crate::finding::{Finding, SpecSection};
use zarrfs_store::Key;

/// The members of a document.
pub(super) type Members = Map<String, Value>;

/// What a rule says of a value.
pub(super) enum Verdict {
    /// It is as the text demands.
    Holds,
    /// It breaks a MUST; what the text demands.
    Fails(String),
    /// It breaks a SHOULD; what the text recommends.
    Discouraged(String),
    /// It breaks a MUST, but Zarr libraries read it and so does the program; what the text demands.
    Tolerated(String),
    /// It breaks a MUST as a known writer does; what the text demands, and the writer.
    Habit(String, &'static str),
}

/// What the absence of a member means.
enum Absence {
    /// The text demands it.
    Fails,
    /// The text demands it, and a known writer leaves it out.
    Habit(&'static str),
    /// The text demands it where another member, of older versions, is not there either.
    FailsWithout(&'static str),
    /// The text leaves it open.
    Allowed,
}

/// Holds the value of a member, which comes with all members, against a text.
pub(super) type CheckValue = fn(&Value, &Members) -> Verdict;

/// What a text demands of one member.
pub(super) struct MemberRule {
    name: &'static str,
    absent: Absence,
    section: SpecSection,
    check: CheckValue,
}

/// A member that the text demands.
pub(super) const fn rule(
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

/// A member that the text demands, unless `other` has its place.
pub(super) const fn one_of(
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

/// A member that the text leaves open.
pub(super) const fn optional(
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

/// A member that the text demands, and that a known writer leaves out.
pub(super) const fn left_out_by(
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

/// What a text demands of a document.
pub(super) struct DocumentRules {
    pub(super) members: &'static [MemberRule],
    /// What it says of members that it does not define, and where.
    pub(super) others: fn(&str, &Value) -> Verdict,
    pub(super) others_section: SpecSection,
}

/// Longest text of a value that is shown, in bytes.
const MAX_SHOWN: usize = 100;

/// Finds all that a document has against its rules.
pub(super) fn apply(rules: &DocumentRules, key: &Key, members: &Members) -> Vec<Finding> {
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

/// Returns the finding about a member that is not there.
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

/// Returns the finding about a value by its verdict: a fact that ends with a subject, and the verb of what is demanded.
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

/// Returns a value as text of limited length.
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
