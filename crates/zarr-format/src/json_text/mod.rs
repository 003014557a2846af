//! JSON as text: what is rewritten keeps every number and word that it does not change, as its author wrote it.
//!
//! Python's NaN, Infinity and -Infinity are words here as well, though JSON has none of them. A number is never read and
//! written again: 1.0 stays 1.0, and an integer of thirty digits keeps them all. Which documents there are, and what
//! their members mean, is left to the dialects.

mod layout;
mod meaning;
mod members;
mod object;
mod scan;
mod surrogates;
mod value;

pub use layout::{compact, dedented, document, document_with, is_empty, is_same};
pub use meaning::means_same;
pub use members::{MemberPlace, check_object, find_member, visit_members};
pub use object::{MemberChange, ObjectText};
pub use value::{parse, render};
