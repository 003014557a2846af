//! The order in which the files of a directory are opened, and the files that come next.
//!
//! Two orders are recognized: by bytes, in which programs list, and with numbers compared as numbers, in which
//! programs count chunks. Concurrent requests may come a little out of order. This file asks no store but for names.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::store::{EntryKind, Key, Store};

/// The most names of a directory that are looked at.
const MAX_NAMES: usize = 100_000;

/// A name and the length of its object, if that is known.
pub(super) type SizedName = (Vec<u8>, Option<u64>);

/// The names of a directory in both orders.
pub(super) struct DirNames {
    /// Sorted by bytes.
    lexical: Vec<SizedName>,
    /// Places in `lexical`, sorted with numbers as numbers.
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

    /// Returns the names of one kind that a directory of a store has.
    pub(super) fn list(store: &dyn Store, directory: &Key, kind: EntryKind) -> Result<DirNames> {
        let mut listing = store.list(directory)?;
        let mut names = Vec::new();
        while let Some(name) = listing.next()?
            && names.len() < MAX_NAMES
        {
            if name.kind == kind {
                names.push((name.name, name.meta.map(|meta| meta.size)));
            }
        }
        Ok(DirNames::new(names))
    }

    /// Returns the name at a place of an order.
    pub(super) fn at(&self, order: NameOrder, place: usize) -> Option<&SizedName> {
        let place = match order {
            NameOrder::Lexical => place,
            NameOrder::Numeric => *self.numeric.get(place)?,
        };
        self.lexical.get(place)
    }

    /// Returns the place of a name in an order.
    pub(super) fn place(&self, order: NameOrder, name: &[u8]) -> Option<usize> {
        let found = match order {
            NameOrder::Lexical => self
                .lexical
                .binary_search_by(|(known, _)| known.as_slice().cmp(name)),
            NameOrder::Numeric => self
                .numeric
                .binary_search_by(|&place| compare(&self.lexical[place].0, name)),
        };
        found.ok()
    }

    /// Returns how many names there are.
    pub(super) fn len(&self) -> usize {
        self.lexical.len()
    }
}

/// An order of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameOrder {
    Lexical,
    Numeric,
}

const ORDERS: [NameOrder; 2] = [NameOrder::Lexical, NameOrder::Numeric];

/// Compares names with their numbers as numbers; equal only if they are the same.
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

/// Returns a number as its length without leading zeros, and its digits.
fn number(digits: &[u8]) -> (usize, &[u8]) {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    let digits = &digits[zeros..];
    (digits.len(), digits)
}

/// How many places a name may be away from the expected one and still count as in order.
const REORDER_TOLERANCE: usize = 16;

/// How many names in order make a directory read sequentially.
const MIN_SEQUENTIAL: u32 = 2;

/// How far the files of a directory have been opened.
#[derive(Default)]
pub(super) struct DirScan {
    pub(super) names: Option<Arc<DirNames>>,
    fits: [OrderFit; 2],
    /// Names before this place, in the recognized order, were issued for fetching.
    issued: usize,
    /// Names that were opened before the directory was listed.
    before_listing: Vec<Vec<u8>>,
    /// The directory that comes after this one in an order, or that there is none; nothing if it was not looked up.
    pub(super) next_dir: Option<(NameOrder, Option<Key>)>,
}

/// How well an order fits the names that were opened.
#[derive(Clone, Copy, Default)]
struct OrderFit {
    /// The furthest place so far.
    place: usize,
    /// How many names in a row were near it.
    streak: u32,
    /// How far they were from the place after it, on average, in sixteenths.
    mean_deviation: usize,
}

impl OrderFit {
    fn note(&mut self, place: usize) {
        let deviation = place.abs_diff(self.place + 1);
        *self = if self.streak > 0 && deviation <= REORDER_TOLERANCE {
            OrderFit {
                place: self.place.max(place),
                streak: self.streak.saturating_add(1),
                mean_deviation: (self.mean_deviation * 3 + deviation * 16) / 4,
            }
        } else {
            OrderFit {
                place,
                streak: 1,
                mean_deviation: 0,
            }
        };
    }
}

/// What comes next in a directory.
#[derive(Clone)]
pub(super) struct Upcoming {
    pub(super) order: NameOrder,
    /// Places that come next and were not issued yet.
    pub(super) places: Range<usize>,
    /// How many names are wanted beyond the directory's end.
    pub(super) beyond: usize,
}

impl DirScan {
    /// Starts a directory that is entered from the one before it; it counts as sequential from the first name.
    pub(super) fn sequential(names: Arc<DirNames>) -> DirScan {
        let fit = OrderFit {
            streak: MIN_SEQUENTIAL,
            ..OrderFit::default()
        };
        DirScan {
            names: Some(names),
            fits: [fit; 2],
            ..DirScan::default()
        }
    }

    /// Returns the places before `end` that were not issued yet, which issues them.
    pub(super) fn issue(&mut self, end: usize) -> Range<usize> {
        let start = self.issued.min(end);
        self.issued = self.issued.max(end);
        start..end
    }

    /// Sets the names of the directory; returns what comes after those that were opened already, at most `window` names.
    pub(super) fn set_names(&mut self, names: Arc<DirNames>, window: usize) -> Option<Upcoming> {
        self.names = Some(names);
        let before = std::mem::take(&mut self.before_listing);
        let upcoming = before.iter().filter_map(|name| self.note(name, window));
        upcoming.last()
    }

    /// Notes that a name was opened; returns what comes next, at most `window` names.
    pub(super) fn note(&mut self, name: &[u8], window: usize) -> Option<Upcoming> {
        let Some(names) = self.names.clone() else {
            self.before_listing.push(name.to_vec());
            self.before_listing.truncate(REORDER_TOLERANCE);
            return None;
        };
        for (order, fit) in ORDERS.into_iter().zip(&mut self.fits) {
            if let Some(place) = names.place(order, name) {
                fit.note(place);
            }
        }
        // Of orders that fit alike, one that does not end here.
        let fits = ORDERS.into_iter().zip(self.fits);
        let fits = fits.filter(|(_, fit)| fit.streak >= MIN_SEQUENTIAL);
        let (order, fit) =
            fits.min_by_key(|(_, fit)| (fit.mean_deviation, fit.place + 1 >= names.len()))?;
        let next = fit.place + 1;
        if self.issued >= next.saturating_add(window) {
            self.issued = 0;
        }
        let end = next.saturating_add(window);
        let places = self.issued.max(next)..end.min(names.len());
        let beyond = end.saturating_sub(names.len()).min(window);
        self.issued = end;
        Some(Upcoming {
            order,
            places,
            beyond,
        })
    }

    /// Returns how many names were opened before the directory was listed; 0 once it was.
    pub(super) fn unlisted(&self) -> usize {
        self.before_listing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Arc<DirNames> {
        let name = |number: usize| (format!("0.{number}").into_bytes(), Some(1));
        Arc::new(DirNames::new((0..count).map(name).collect()))
    }

    fn issued(scan: &mut DirScan, name: &str) -> Vec<String> {
        let names = scan.names.clone().unwrap();
        let upcoming = scan.note(name.as_bytes(), 4);
        upcoming.map_or_else(Vec::new, |upcoming| {
            let name = |place| names.at(upcoming.order, place).unwrap().0.clone();
            upcoming
                .places
                .map(|place| String::from_utf8(name(place)).unwrap())
                .collect()
        })
    }

    #[test]
    fn both_orders_are_followed() {
        let mut scan = DirScan {
            names: Some(names(30)),
            ..DirScan::default()
        };
        issued(&mut scan, "0.8");
        assert_eq!(issued(&mut scan, "0.9")[..2], ["0.10", "0.11"]);
        assert_eq!(issued(&mut scan, "0.10"), ["0.14"]);
        let mut scan = DirScan {
            names: Some(names(30)),
            ..DirScan::default()
        };
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
        let mut scan = DirScan {
            names: Some(names(2000)),
            ..DirScan::default()
        };
        for place in [1900, 900, 1700, 100, 1400] {
            assert!(issued(&mut scan, &format!("0.{place}")).is_empty());
        }
    }
}
