//! Edits JSON as text and keeps all numbers and words that do not change.
//!
//! Python's NaN, Infinity and -Infinity are accepted as words, although JSON lacks them. A number is never parsed and
//! formatted again: 1.0 stays 1.0, and an integer of thirty digits keeps them all. The dialects interpret documents and
//! their members.

mod object;
mod scan;
mod tokens;
mod value;

pub use object::{MemberChange, ObjectText};
pub use scan::{MemberPlace, check_object, find_member, visit_members};
pub(crate) use tokens::document_with;
pub use tokens::{compact, dedented, document, is_empty, is_equivalent, is_same};
pub use value::{parse, render};
