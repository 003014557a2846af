//! Edits JSON as text, so that unchanged numbers and words keep their spelling.
//!
//! Python's NaN, Infinity and -Infinity are accepted, although JSON lacks them. A number is never parsed and formatted
//! again: 1.0 stays 1.0, and an integer of thirty digits keeps all its digits. The dialects interpret the metadata.

mod object;
mod scan;
mod tokens;
mod value;

pub use object::{MemberChange, ObjectText};
pub use scan::{MemberPlace, check_object, find_member, visit_members};
pub(crate) use tokens::document_with;
pub use tokens::{compact, dedented, document, is_empty, is_equivalent, is_same};
pub use value::{parse, render};
