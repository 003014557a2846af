//! Names that netCDF allows, for dimensions, variables and attributes.
//!
//! As in NCO, an invalid character becomes an underscore, so nothing is left out because of its name. The arrays of a
//! group share dimensions; a dimension has one name and one length.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use zarr_format::model::Array;

/// The number and the length of each netCDF dimension of a group, by its name.
type NumberedDimensions = BTreeMap<String, (u64, u64)>;

/// The dimensions that a group can use: its own and those of the groups above it, the nearest group first.
pub(crate) type VisibleDimensions = Vec<Rc<NumberedDimensions>>;

/// The netCDF dimensions of a group.
#[derive(Default)]
pub(crate) struct GroupDimensions {
    numbers: NumberedDimensions,
    /// The number of the group's first dimension.
    first: u64,
    /// The dimensions of the groups above, nearest first. `used` has those of them that an array of the group uses.
    above: VisibleDimensions,
    used: NumberedDimensions,
    /// Names that no new dimension may get.
    taken: BTreeSet<String>,
}

impl GroupDimensions {
    /// Starts an empty list of dimensions for a group below other groups, whose dimensions are in `above`. New
    /// dimensions are numbered from `first` on, and get no name in `taken`.
    pub(crate) fn below(
        above: VisibleDimensions,
        first: u64,
        taken: BTreeSet<String>,
    ) -> GroupDimensions {
        GroupDimensions {
            numbers: BTreeMap::new(),
            first,
            above,
            used: BTreeMap::new(),
            taken,
        }
    }

    /// Returns the dimensions that the groups below the group can use.
    pub(crate) fn visible(self) -> VisibleDimensions {
        let own = Rc::new(self.numbers);
        std::iter::once(own).chain(self.above).collect()
    }

    /// Adds the dimensions of coordinate variables before all others, so that they keep their names if several
    /// dimensions have the same name.
    pub(crate) fn add_coordinates<'a>(
        &mut self,
        arrays: impl Iterator<Item = (&'a str, &'a Array)>,
    ) {
        for (array_name, array) in arrays {
            if let ([length], [Some(name)]) = (&array.shape[..], &array.dimension_names[..])
                && name == array_name
            {
                self.own_number(Some(name), *length);
            }
        }
    }

    /// Returns the number of the dimension with this name and length, in the group or in a group above. If there is
    /// none, adds one; its length becomes a suffix if a dimension of another length has the name.
    pub(crate) fn number(&mut self, name: Option<&str>, length: u64) -> u64 {
        if let Some(name) = name.map(legal_name)
            && !self.numbers.contains_key(&name)
            && let Some(above) = self
                .above
                .iter()
                .find_map(|group| group.get(&name).copied())
            && above.1 == length
        {
            self.used.insert(name, above);
            return above.0;
        }
        self.own_number(name, length)
    }

    fn own_number(&mut self, name: Option<&str>, length: u64) -> u64 {
        let plain = name.filter(|name| !name.is_empty()).map(legal_name);
        let plain = plain.unwrap_or_else(|| format!("dim_{length}"));
        let suffixed = format!("{plain}_{length}");
        for name in [plain, suffixed] {
            if self.taken.contains(&name) {
                continue;
            }
            match self.numbers.get(&name).or(self.used.get(&name)) {
                Some(&(number, known)) if known == length => return number,
                Some(_) => {}
                None => return self.add(name, length),
            }
        }
        let number = self.next();
        let mut name = format!("dim_{length}_{number}");
        while self.taken.contains(&name) || self.numbers.contains_key(&name) {
            name.push('_');
        }
        self.add(name, length)
    }

    /// Returns the number that the next new dimension will get.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.numbers.len() as u64
    }

    fn add(&mut self, name: String, length: u64) -> u64 {
        let number = self.next();
        self.numbers.insert(name, (number, length));
        number
    }

    /// Returns the names and lengths of the group's dimensions, in the order of their numbers.
    pub(crate) fn list(&self) -> Vec<(&str, u64)> {
        let mut list: Vec<_> = self.numbers.iter().collect();
        list.sort_by_key(|(_, (number, _))| *number);
        list.into_iter()
            .map(|(name, (_, length))| (name.as_str(), *length))
            .collect()
    }
}

/// Maximum length of a netCDF name in bytes.
const MAX_NAME: usize = 255;

/// Whether netCDF accepts a text as the name of a dimension, variable or attribute.
pub(crate) fn is_name(name: &str) -> bool {
    starts_name(name)
        && name.len() <= MAX_NAME
        && !name.ends_with(' ')
        && !name.contains(|letter: char| letter.is_control() || letter == '/')
}

fn starts_name(name: &str) -> bool {
    name.starts_with(|first: char| {
        first.is_ascii_alphanumeric() || first == '_' || !first.is_ascii()
    })
}

/// Makes a valid netCDF name: replaces invalid characters, and shortens a name that is too long.
fn legal_name(name: &str) -> String {
    let blanks = name.len() - name.trim_end_matches(' ').len();
    let (name, ends) = name.split_at(name.len() - blanks);
    let is_bad = |letter: char| letter.is_control() || letter == '/';
    let mut legal = name.replace(is_bad, "_") + &"_".repeat(ends.len());
    if !starts_name(&legal) {
        legal.insert(0, '_');
    }
    if legal.len() > MAX_NAME {
        shorten(&mut legal);
    }
    legal
}

/// Shortens a name that is too long, so that an underscore and a number can be appended to it.
fn shorten(name: &mut String) {
    let longest = MAX_NAME - 12;
    if name.len() <= longest {
        return;
    }
    let end = (0..=longest).rfind(|&end| name.is_char_boundary(end));
    name.truncate(end.unwrap_or(0));
}

/// Returns a unique valid name for each name; valid names stay unchanged. `is_valid` must accept a name after it became
/// legal and a number was appended, because otherwise the loop does not end.
pub(crate) fn unique_names<'a>(
    names: impl Iterator<Item = &'a String> + Clone,
    is_valid: impl Fn(&str) -> bool,
) -> Vec<String> {
    let own = names.clone().filter(|name| is_valid(name));
    let mut taken: HashSet<String> = own.cloned().collect();
    let mut counts = HashMap::new();
    let unique = names.map(|name| {
        if is_valid(name) {
            return name.clone();
        }
        let mut legal = legal_name(name);
        shorten(&mut legal);
        let count = counts.entry(legal.clone()).or_insert(0_u64);
        let unique = loop {
            let candidate = numbered(&legal, *count);
            *count += 1;
            if is_valid(&candidate) && !taken.contains(&candidate) {
                break candidate;
            }
        };
        taken.insert(unique.clone());
        unique
    });
    unique.collect()
}

/// Returns the `count`th candidate for a unique name: `a`, `a_`, `a_2`, `a_3`.
fn numbered(name: &str, count: u64) -> String {
    match count {
        0 => name.to_string(),
        1 => format!("{name}_"),
        more => format!("{name}_{more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subgroups_share_dimensions_of_the_same_name_and_length() {
        let mut top = GroupDimensions::default();
        assert_eq!((top.number(Some("x"), 5), top.number(Some("y"), 3)), (0, 1));
        let above = top.visible();
        let below = || GroupDimensions::below(above.clone(), 2, BTreeSet::new());
        let mut shared = below();
        assert_eq!(shared.number(Some("x"), 5), 0);
        assert_eq!(shared.number(Some("x"), 7), 2);
        assert_eq!(
            (shared.number(Some("x"), 5), shared.number(None, 5)),
            (0, 3)
        );
        assert_eq!(shared.list(), [("x_7", 7), ("dim_5", 5)]);
        let mut hidden = below();
        assert_eq!(
            (hidden.number(Some("x"), 7), hidden.number(Some("x"), 5)),
            (2, 3)
        );
        assert_eq!(hidden.list(), [("x", 7), ("x_5", 5)]);
        let mut lowest = GroupDimensions::below(shared.visible(), 4, BTreeSet::new());
        assert_eq!(
            (lowest.number(Some("x_7"), 7), lowest.number(Some("y"), 3)),
            (2, 1)
        );
    }

    #[test]
    fn names_that_netcdf_forbids_are_replaced() {
        for (own, legal) in [
            ("a/b", "a_b"),
            ("@type", "_@type"),
            ("", "_"),
            ("end  ", "end__"),
            ("line\nfeed", "line_feed"),
            ("plain name", "plain name"),
            ("\u{e4}/", "\u{e4}_"),
        ] {
            assert_eq!(legal_name(own), legal);
            assert!(is_name(legal), "{legal}");
        }
        let long = legal_name(&"\u{e4}".repeat(200));
        assert!(is_name(&long) && long.len() < 250);
    }

    #[test]
    fn colliding_names_get_different_suffixes() {
        let names = ["a/b", "a\u{1}b", "a_b", "x"].map(str::to_string);
        let unique = unique_names(names.iter(), is_name);
        assert_eq!(unique, ["a_b_", "a_b_2", "a_b", "x"]);
    }

    #[test]
    fn many_long_names_stay_unique() {
        let names: Vec<_> = (0..50_000_u32)
            .map(|bits| {
                let letters = (0..16).map(|bit| if bits >> bit & 1 == 1 { '/' } else { '\n' });
                "\u{e4}".repeat(150) + &letters.collect::<String>()
            })
            .collect();
        let unique = unique_names(names.iter(), is_name);
        assert!(unique.iter().all(|name| is_name(name)));
        assert_eq!(unique.iter().collect::<HashSet<_>>().len(), names.len());
    }
}
