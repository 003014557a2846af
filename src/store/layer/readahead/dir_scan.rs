//! In which order somebody goes through the names of a directory, and which come next.
//!
//! Names are followed in two orders: as they sort, which is how programs that list go, and with their numbers as
//! numbers, which is how programs go that count chunks. Requests side by side come a little out of order.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::store::Key;

/// A name and the length of its object, if that is known.
pub(super) type Sized = (Vec<u8>, Option<u64>);

/// The names of a directory in both orders.
pub(super) struct DirNames {
    /// As they sort.
    plain: Vec<Sized>,
    /// Places in `plain`, with numbers as numbers.
    counted: Vec<u32>,
}

impl DirNames {
    /// Sorts names.
    pub(super) fn new(mut plain: Vec<Sized>) -> DirNames {
        plain.sort();
        let mut counted: Vec<u32> = (0..plain.len() as u32).collect();
        counted.sort_by(|one, other| {
            let name = |place: &u32| plain[*place as usize].0.as_slice();
            compare(name(one), name(other))
        });
        DirNames { plain, counted }
    }

    /// Returns the name at a place of an order.
    pub(super) fn at(&self, order: NameOrder, place: usize) -> Option<&Sized> {
        match order {
            NameOrder::Plain => self.plain.get(place),
            NameOrder::Counted => self.plain.get(*self.counted.get(place)? as usize),
        }
    }

    /// Returns the place of a name in an order.
    pub(super) fn place(&self, order: NameOrder, name: &[u8]) -> Option<usize> {
        match order {
            NameOrder::Plain => self
                .plain
                .binary_search_by(|(known, _)| known.as_slice().cmp(name))
                .ok(),
            NameOrder::Counted => {
                let known = |place: &u32| self.plain[*place as usize].0.as_slice();
                self.counted
                    .binary_search_by(|place| compare(known(place), name))
                    .ok()
            }
        }
    }

    /// Returns how many names there are.
    pub(super) fn len(&self) -> usize {
        self.plain.len()
    }
}

/// An order of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameOrder {
    Plain,
    Counted,
}

const ORDERS: [NameOrder; 2] = [NameOrder::Plain, NameOrder::Counted];

/// Compares names with their numbers as numbers; equal only if they are the same.
fn compare(one: &[u8], other: &[u8]) -> Ordering {
    let (mut a, mut b) = (one, other);
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        let (digits, others) = (digits(a), digits(b));
        let order = match (digits, others) {
            (0, _) | (_, 0) => x.cmp(y),
            _ => number(&a[..digits]).cmp(&number(&b[..others])),
        };
        if order != Ordering::Equal {
            return order;
        }
        let (skipped, passed) = if digits == 0 || others == 0 {
            (1, 1)
        } else {
            (digits, others)
        };
        (a, b) = (&a[skipped..], &b[passed..]);
    }
    a.len().cmp(&b.len()).then_with(|| one.cmp(other))
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Returns a number as its length without leading zeros, and its digits.
fn number(digits: &[u8]) -> (usize, &[u8]) {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    let digits = &digits[zeros..];
    (digits.len(), digits)
}

/// How far from where it was expected a name may lie and still be in order.
const SLACK: usize = 16;

/// How many names in order are a pattern.
const PROOF: u32 = 2;

/// How somebody goes through a directory.
#[derive(Default)]
pub(super) struct DirScan {
    pub(super) names: Option<Arc<DirNames>>,
    steps: [OrderFit; 2],
    /// Up to where names were given out, in the order that is followed.
    given: usize,
    /// Names that were seen before the directory was listed.
    before: Vec<Vec<u8>>,
    /// The directory that comes after this one in an order, if there is one; once that was looked up.
    pub(super) onward: Option<(NameOrder, Option<Key>)>,
}

/// How well an order fits.
#[derive(Clone, Copy, Default)]
struct OrderFit {
    /// The furthest place so far.
    place: usize,
    /// How many names in a row were near it.
    streak: u32,
    /// How far they were from the place after it, on average, in sixteenths.
    astray: usize,
}

impl OrderFit {
    fn note(&mut self, place: usize) {
        let far = place.abs_diff(self.place + 1);
        *self = match self.streak > 0 && far <= SLACK {
            true => OrderFit {
                place: self.place.max(place),
                streak: self.streak.saturating_add(1),
                astray: (self.astray * 3 + far * 16) / 4,
            },
            false => OrderFit {
                place,
                streak: 1,
                astray: 0,
            },
        };
    }
}

/// What comes next in a directory.
pub(super) struct Next {
    pub(super) order: NameOrder,
    /// Places that come next and were not given out yet.
    pub(super) places: std::ops::Range<usize>,
    /// How many are wanted beyond the directory's end.
    pub(super) beyond: usize,
}

impl DirScan {
    /// Returns the trail of somebody who comes from another directory.
    pub(super) fn following(names: Arc<DirNames>) -> DirScan {
        DirScan {
            names: Some(names),
            steps: [OrderFit {
                streak: PROOF,
                ..OrderFit::default()
            }; 2],
            ..DirScan::default()
        }
    }

    /// Returns the places before `end` that were not given out yet.
    pub(super) fn give(&mut self, end: usize) -> std::ops::Range<usize> {
        let start = self.given.min(end);
        self.given = self.given.max(end);
        start..end
    }

    /// Gives the trail the names of its directory.
    pub(super) fn learn(&mut self, names: Arc<DirNames>, most: usize) -> Option<Next> {
        self.names = Some(names);
        let before = std::mem::take(&mut self.before);
        before
            .iter()
            .filter_map(|name| self.note(name, most))
            .last()
    }

    /// Notes a name; returns what comes next, at most `most` names.
    pub(super) fn note(&mut self, name: &[u8], most: usize) -> Option<Next> {
        let Some(names) = self.names.clone() else {
            self.before.push(name.to_vec());
            self.before.truncate(SLACK);
            return None;
        };
        for (order, steps) in ORDERS.into_iter().zip(&mut self.steps) {
            if let Some(place) = names.place(order, name) {
                steps.note(place);
            }
        }
        // Of orders that fit alike, one that goes on.
        let fitting = ORDERS.into_iter().zip(self.steps);
        let fitting = fitting.filter(|(_, steps)| steps.streak >= PROOF);
        let (order, steps) =
            fitting.min_by_key(|(_, steps)| (steps.astray, steps.place + 1 >= names.len()))?;
        let place = steps.place;
        if self.given > place.saturating_add(most) {
            self.given = 0;
        }
        let end = (place + 1).saturating_add(most);
        let places = self.given.max(place + 1)..end.min(names.len());
        let beyond = end.saturating_sub(names.len()).min(most);
        self.given = end;
        Some(Next {
            order,
            places,
            beyond,
        })
    }

    /// How many names were seen; 0 once the directory was listed.
    pub(super) fn waiting(&self) -> usize {
        self.before.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Arc<DirNames> {
        let name = |number: usize| (format!("0.{number}").into_bytes(), Some(1));
        Arc::new(DirNames::new((0..count).map(name).collect()))
    }

    fn given(trail: &mut DirScan, name: &str) -> Vec<String> {
        let names = trail.names.clone().unwrap();
        let next = trail.note(name.as_bytes(), 4);
        next.map_or_else(Vec::new, |next| {
            let name = |place| names.at(next.order, place).unwrap().0.clone();
            next.places
                .map(|place| String::from_utf8(name(place)).unwrap())
                .collect()
        })
    }

    #[test]
    fn both_orders_are_followed() {
        let mut trail = DirScan {
            names: Some(names(30)),
            ..DirScan::default()
        };
        given(&mut trail, "0.8");
        assert_eq!(given(&mut trail, "0.9")[..2], ["0.10", "0.11"]);
        assert_eq!(given(&mut trail, "0.10"), ["0.14"]);
        let mut trail = DirScan {
            names: Some(names(30)),
            ..DirScan::default()
        };
        given(&mut trail, "0.19");
        given(&mut trail, "0.2");
        assert!(given(&mut trail, "0.20").contains(&"0.24".to_string()));
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
        let mut trail = DirScan {
            names: Some(names(2000)),
            ..DirScan::default()
        };
        for place in [1900, 900, 1700, 100, 1400] {
            assert!(given(&mut trail, &format!("0.{place}")).is_empty());
        }
    }
}
