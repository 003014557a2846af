//! Why a format has no file of an array: what has to be another way for it to have one.
//!
//! The formats themselves are asked: of the same array with other numbers of dimensions, lengths, names and attributes, one
//! after the other. So an answer cannot differ from what a format does. It takes some hundred headers, and is for messages
//! alone.

use serde_json::json;

use crate::export::{Format, Subject};
use crate::model::{Array, Attributes, DataType, FillValue, MAX_RANK};

/// A name that every format can have.
const PLAIN_NAME: &[u8] = b"a";

/// An attribute without which formats of samples have no file.
const RATE: &str = "sample_rate";

/// Names of dimensions of which a format may want some, in this order; others stay without.
const LAYOUTS: [&[&str]; 2] = [&["y", "band", "x"], &["y", "x", "band"]];

/// Returns why a format has no file of an array; nothing if it has one. It is said after the name of the format and a colon.
pub fn why_not(format: &Format, subject: &Subject) -> Option<String> {
    if holds(format, subject) {
        return None;
    }
    if format.parts.is_none() && !subject.array.data_type.is_variable() {
        return Some("for elements without a fixed length".to_string());
    }
    let (data_type, rank) = (&subject.array.data_type, subject.shape.len());
    let ranks = ranks_of(format, subject.array, data_type);
    if ranks.is_empty() {
        return Some(format!("no {data_type}"));
    }
    if !ranks.contains(&rank) {
        return Some(format!("{}, not {rank}", dimensions(&ranks)));
    }
    Some(why_not_this(format, subject).to_string())
}

/// Returns why there is no file of an array of whose type and number of dimensions there are others.
fn why_not_this(format: &Format, subject: &Subject) -> &'static str {
    let holds = |subject: &Subject| holds(format, subject);
    let plain = plain(subject.array, &subject.array.data_type, subject.shape);
    let named = Subject {
        name: PLAIN_NAME,
        chosen: "",
        ..*subject
    };
    let rated = Array {
        attributes: rated(&subject.array.attributes),
        ..subject.array.clone()
    };
    let rated = Subject {
        array: &rated,
        ..*subject
    };
    if holds(&named) {
        "the name cannot be said"
    } else if holds(&rated) {
        "an attribute with the rate is needed, such as sample_rate"
    } else if holds_somehow(format, &plain) {
        "dimensions of other names or in another order"
    } else if subject.shape.contains(&0) {
        "no dimension of length 0"
    } else {
        "no lengths as these"
    }
}

/// Returns the numbers of dimensions of arrays of a type that a format has files of, whatever they are like otherwise.
pub fn ranks_of(format: &Format, like: &Array, data_type: &DataType) -> Vec<usize> {
    let fits = |rank: &usize| {
        let shape = vec![1; *rank];
        holds_somehow(format, &plain(like, data_type, &shape))
    };
    (0..=MAX_RANK).filter(fits).collect()
}

/// Whether a format has a file of an array with dimensions of any names.
fn holds_somehow(format: &Format, plain: &Array) -> bool {
    let named = |names: &[&str]| Array {
        dimension_names: names.iter().map(|name| Some((*name).to_string())).collect(),
        ..plain.clone()
    };
    let fits = |names: &&[&str]| {
        names.len() == plain.shape.len() && holds(format, &alone(&named(names), &plain.shape))
    };
    holds(format, &alone(plain, &plain.shape)) || LAYOUTS.iter().any(fits)
}

/// Whether a format has a file of an array that decodes.
pub fn holds(format: &Format, subject: &Subject) -> bool {
    match format.parts {
        Some(make) if !subject.array.data_type.is_variable() => make(subject).is_some(),
        _ => format.fits(subject),
    }
}

fn alone<'a>(array: &'a Array, shape: &'a [u64]) -> Subject<'a> {
    Subject {
        name: PLAIN_NAME,
        ..Subject::alone(array, shape)
    }
}

/// Returns an array of a type and a shape with nothing beside them.
fn plain(like: &Array, data_type: &DataType, shape: &[u64]) -> Array {
    Array {
        shape: shape.to_vec(),
        data_type: data_type.clone(),
        fill_value: FillValue {
            bytes: vec![0; data_type.size().unwrap_or(0)],
            ..like.fill_value.clone()
        },
        dimension_names: Vec::new(),
        attributes: rated(&Attributes::default()),
        ..like.clone()
    }
}

fn rated(attributes: &Attributes) -> Attributes {
    attributes.with(RATE, &json!(1))
}

/// Writes numbers of dimensions, which are one after the other: `1 to 3 dimensions`.
fn dimensions(ranks: &[usize]) -> String {
    match *ranks {
        [1] => "1 dimension".to_string(),
        [only] => format!("{only} dimensions"),
        [first, second] => format!("{first} or {second} dimensions"),
        [first, .., last] => format!("{first} to {last} dimensions"),
        [] => String::new(),
    }
}
