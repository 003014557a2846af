//! The table of plain dialects, and the choice of one for a store.

use std::fmt;
use std::str::FromStr;

use crate::dialect::draft::{Draft, draft2019, draft2020, draft2022};
use crate::dialect::{Dialect, n5, v2, v3};
use crate::error::{Error, Result};

/// All plain dialects, in the order in which they are tried.
pub static DIALECTS: &[&Dialect] = &[&v3::DIALECT, &v2::DIALECT, &n5::DIALECT];

/// Like `DIALECTS`, for nodes below the root of an N5 container, where every `attributes.json` describes a node.
static WITHIN_N5: &[&Dialect] = &[&v3::DIALECT, &v2::DIALECT, &n5::WITHIN];

/// The names of all dialects.
const NAMES: [&str; 6] = ["v2", "v3", "draft2019", "draft2020", "draft2022", "n5"];

/// Returns the dialects to try for the children of a group that `found` has read, or `None` if they are the ones that
/// were `tried` for the group.
pub fn tried_below(
    found: &Dialect,
    tried: &'static [&'static Dialect],
) -> Option<&'static [&'static Dialect]> {
    let is_new = found.name == n5::DIALECT.name && std::ptr::eq(tried, DIALECTS);
    is_new.then_some(WITHIN_N5)
}

/// A dialect that the user chose for a store, whatever its documents look like.
#[derive(Clone, Copy)]
pub enum Choice {
    /// Only this dialect, for each node.
    Plain(&'static [&'static Dialect]),
    /// The store is a draft's hierarchy, with or without an entry point.
    Draft(&'static Draft),
}

impl Choice {
    /// Returns the dialect's name.
    pub fn name(&self) -> &'static str {
        match self {
            Choice::Plain(dialects) => dialects.first().map_or("", |dialect| dialect.name),
            Choice::Draft(draft) => draft.name,
        }
    }
}

impl FromStr for Choice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Choice> {
        match name {
            "v2" => Ok(Choice::Plain(&[&v2::DIALECT])),
            "v3" => Ok(Choice::Plain(&[&v3::DIALECT])),
            "n5" => Ok(Choice::Plain(&[&n5::WITHIN])),
            "draft2019" => Ok(Choice::Draft(&draft2019::DRAFT)),
            "draft2020" => Ok(Choice::Draft(&draft2020::DRAFT)),
            "draft2022" => Ok(Choice::Draft(&draft2022::DRAFT)),
            other => {
                let known = NAMES.join(", ");
                Err(Error::invalid(
                    other,
                    format!("not a dialect; there are {known}"),
                ))
            }
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_dialect() {
        for name in NAMES {
            assert_eq!(name.parse::<Choice>().unwrap().name(), name);
        }
        let error = "v1".parse::<Choice>().unwrap_err().to_string();
        assert!(error.contains("draft2022"), "{error}");
    }
}
