//! Edits JSON as text and keeps all numbers and words that do not change.
//!
//! Python's NaN, Infinity and -Infinity are accepted as words, although JSON lacks them. A number is never parsed and
//! formatted again: 1.0 stays 1.0, and an integer of thirty digits keeps them all. The dialects interpret documents and
//! their members.

mod layout;
mod meaning;
mod object;
mod scan;
mod value;

pub(crate) use layout::document_with;
pub use layout::{compact, dedented, document, is_empty, is_same};
pub use meaning::is_equivalent;
pub use object::{MemberChange, ObjectText};
pub use scan::{MemberPlace, check_object, find_member, visit_members};
pub use value::{parse, render};
