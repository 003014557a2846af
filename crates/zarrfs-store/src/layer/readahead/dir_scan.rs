//! Tracks sequential use of a directory's names, to predict the next ones.
//!
//! Two sort orders are recognized: by bytes, as programs list, and with numbers by value, as programs count chunks.
//! Concurrent requests may overtake each other a little. Only the listings here make requests.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use crate::layer::name_sequence::NameSequence;
use crate::request_context::RequestContext;
use crate::{EntryKind, Key, Store};
use zarr_format::error::Result;

/// Maximum number of names of a directory to consider.
const MAX_NAMES: usize = 100_000;

/// A name, and the length of its object if known.
pub(super) type SizedName = (Vec<u8>, Option<u64>);

/// The names of a directory in both sort orders.
pub(super) struct DirNames {
    /// Sorted by bytes.
    lexical: Vec<SizedName>,
    /// Indices into `lexical`, sorted with numbers by value.
    numeric: Vec<usize>,
}

impl DirNames {
    /// Sorts names.
    pub(super) fn new(mut lexical: Vec<SizedName>) -> DirNames {
        lexical.sort();
        let mut numeric: Vec<usize> = (0..lexical.len()).collect();
        numeric.sort_by(|&one, &other| compare(&lexical[one].0, &lexical[other].0));
        DirNames { lexical, numeric }
    }

    /// Lists the names of one kind in a directory.
    pub(super) fn list(
        context: &RequestContext,
        store: &dyn Store,
        directory: &Key,
        kind: EntryKind,
    ) -> Result<DirNames> {
        let mut listing = store.list(context, directory)?;
        let mut names = Vec::new();
        while let Some(name) = listing.next(context)?
            && names.len() < MAX_NAMES
        {
            if name.kind == kind {
                names.push((name.name, name.meta.map(|meta| meta.size)));
            }
        }
        Ok(DirNames::new(names))
    }

    /// Returns the name at an index of a sort order.
    pub(super) fn at(&self, sorting: Sorting, place: usize) -> Option<&SizedName> {
        let place = match sorting {
            Sorting::Lexical => place,
            Sorting::Numeric => *self.numeric.get(place)?,
        };
        self.lexical.get(place)
    }

    /// Returns the index of a name in a sort order.
    pub(super) fn place(&self, sorting: Sorting, name: &[u8]) -> Option<usize> {
        let found = match sorting {
            Sorting::Lexical => self
                .lexical
                .binary_search_by(|(known, _)| known.as_slice().cmp(name)),
            Sorting::Numeric => self
                .numeric
                .binary_search_by(|&place| compare(&self.lexical[place].0, name)),
        };
        found.ok()
    }

    /// Returns the number of names.
    pub(super) fn len(&self) -> usize {
        self.lexical.len()
    }
}

/// A sort order of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sorting {
    Lexical,
    Numeric,
}

const SORTINGS: [Sorting; 2] = [Sorting::Lexical, Sorting::Numeric];

/// Compares names with numbers by value; equal only if the names are identical.
fn compare(one: &[u8], other: &[u8]) -> Ordering {
    let (mut a, mut b) = (one, other);
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        let (digits, others) = (count_digits(a), count_digits(b));
        let is_number = digits > 0 && others > 0;
        let order = if is_number {
            number(&a[..digits]).cmp(&number(&b[..others]))
        } else {
            x.cmp(y)
        };
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = if is_number {
            (&a[digits..], &b[others..])
        } else {
            (&a[1..], &b[1..])
        };
    }
    a.len().cmp(&b.len()).then_with(|| one.cmp(other))
}

fn count_digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Returns a sortable form of a number: its length without leading zeros, then its digits.
fn number(digits: &[u8]) -> (usize, &[u8]) {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    let digits = &digits[zeros..];
    (digits.len(), digits)
}

/// Number of names in sequence that makes a directory sequential.
const MIN_SEQUENTIAL: usize = 2;

/// Maximum number of names to remember before the directory is listed.
const MAX_BEFORE_LISTING: usize = 16;

/// The progress of a program through the files or subdirectories of a directory.
pub(super) struct DirScan {
    /// Number of names in sequence that makes this directory sequential.
    least: usize,
    pub(super) names: Option<Arc<DirNames>>,
    orders: [NameSequence; 2],
    /// Names used before the directory was listed.
    before_listing: Vec<Vec<u8>>,
    /// Whether the end of the directory was returned.
    has_ended: bool,
}

/// The next names of a directory.
#[derive(Clone)]
pub(super) struct Upcoming {
    pub(super) sorting: Sorting,
    /// Indices of the next names, each returned once.
    pub(super) places: Range<usize>,
    /// Whether the directory ends there; set only once.
    pub(super) ends: bool,
}

impl DirScan {
    /// Starts with the first use of a name in a directory.
    pub(super) fn new(name: &[u8], kind: EntryKind) -> DirScan {
        // A directory with a number as its name is one of many with the chunks of an array.
        let is_number = name.iter().all(u8::is_ascii_digit);
        DirScan {
            least: if kind == EntryKind::Directory && is_number {
                1
            } else {
                MIN_SEQUENTIAL
            },
            names: None,
            orders: Default::default(),
            before_listing: Vec::new(),
            has_ended: false,
        }
    }

    /// Starts a directory that is probably read sequentially, with `fetched` names prefetched already.
    pub(super) fn sequential(names: Arc<DirNames>, fetched: usize) -> DirScan {
        DirScan {
            least: MIN_SEQUENTIAL,
            names: Some(names),
            orders: [NameSequence::at_first(MIN_SEQUENTIAL, fetched); 2],
            before_listing: Vec::new(),
            has_ended: false,
        }
    }

    /// Sets the names of the directory; returns the next at most `window` names after those that were used.
    pub(super) fn set_names(&mut self, names: Arc<DirNames>, window: usize) -> Option<Upcoming> {
        self.names = Some(names.clone());
        let before = std::mem::take(&mut self.before_listing);
        let (last, others) = before.split_last()?;
        for name in others {
            self.note_place(&names, name);
        }
        self.note(last, window)
    }

    fn note_place(&mut self, names: &DirNames, name: &[u8]) {
        for (sorting, order) in SORTINGS.into_iter().zip(&mut self.orders) {
            if let Some(place) = names.place(sorting, name) {
                order.record(place);
            }
        }
    }

    /// Records the use of a name; returns the next at most `window` names.
    pub(super) fn note(&mut self, name: &[u8], window: usize) -> Option<Upcoming> {
        let Some(names) = self.names.clone() else {
            self.before_listing.push(name.to_vec());
            self.before_listing.truncate(MAX_BEFORE_LISTING);
            return None;
        };
        self.note_place(&names, name);
        let orders = SORTINGS.into_iter().zip(&mut self.orders);
        let least = self.least;
        let orders = orders.filter(|(_, order)| order.count() >= least);
        // Of equally good orders, prefer one that does not end here.
        let (sorting, order) =
            orders.min_by_key(|(_, order)| (order.deviation(), order.next() >= names.len()))?;
        let places = order.take_window(window);
        let reaches_end = places.end >= names.len();
        let ends = reaches_end && !self.has_ended;
        self.has_ended = reaches_end;
        Some(Upcoming {
            sorting,
            places: places.start..places.end.min(names.len()),
            ends,
        })
    }

    /// Whether the names are needed now and unknown.
    pub(super) fn must_list(&self) -> bool {
        self.names.is_none() && self.before_listing.len() == self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(count: usize) -> DirScan {
        let name = |number: usize| (format!("0.{number}").into_bytes(), Some(1));
        let names = DirNames::new((0..count).map(name).collect());
        let mut scan = DirScan::new(b"0.0", EntryKind::File);
        scan.set_names(Arc::new(names), 4);
        scan
    }

    fn issued(scan: &mut DirScan, name: &str) -> Vec<String> {
        let names = scan.names.clone().unwrap();
        let upcoming = scan.note(name.as_bytes(), 4);
        upcoming.map_or_else(Vec::new, |upcoming| {
            let name = |place| names.at(upcoming.sorting, place).unwrap().0.clone();
            upcoming
                .places
                .map(|place| String::from_utf8(name(place)).unwrap())
                .collect()
        })
    }

    #[test]
    fn both_orders_are_followed() {
        let mut scan = files(30);
        issued(&mut scan, "0.8");
        assert_eq!(issued(&mut scan, "0.9")[..2], ["0.10", "0.11"]);
        assert_eq!(issued(&mut scan, "0.10"), ["0.14"]);
        let mut scan = files(30);
        issued(&mut scan, "0.19");
        issued(&mut scan, "0.2");
        assert!(issued(&mut scan, "0.20").contains(&"0.24".to_string()));
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        for (one, other) in [
            ("c9", "c10"),
            ("1.2", "1.10"),
            ("a", "b"),
            ("01", "1"),
            ("a", "a1"),
        ] {
            assert_eq!(
                compare(one.as_bytes(), other.as_bytes()),
                Ordering::Less,
                "{one} {other}"
            );
        }
        assert_eq!(compare(b"c07", b"c07"), Ordering::Equal);
    }

    #[test]
    fn jumps_are_no_order() {
        let mut scan = files(2000);
        for place in [1900, 900, 1700, 100, 1400] {
            assert!(issued(&mut scan, &format!("0.{place}")).is_empty());
        }
    }
}
