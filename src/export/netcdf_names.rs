//! Names as netCDF takes them, and what attributes are called there whose own names it does not take.
//!
//! As NCO does it, a letter that cannot stand in a name becomes an underscore, so nothing is left out for its name.

use std::collections::BTreeSet;

/// The longest name, in bytes.
const MAX_NAME: usize = 255;

/// Whether netCDF takes a text as a name.
pub(super) fn is_name(name: &str) -> bool {
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

/// Returns a name that netCDF takes: this one, or the one nearest to it.
pub(super) fn legal_name(name: &str) -> String {
    let blanks = name.len() - name.trim_end_matches(' ').len();
    let (name, ends) = name.split_at(name.len() - blanks);
    let is_bad = |letter: char| letter.is_control() || letter == '/';
    let mut legal = name.replace(is_bad, "_") + &"_".repeat(ends.len());
    if !starts_name(&legal) {
        legal.insert(0, '_');
    }
    // With room for what makes it another name than those of others.
    if legal.len() > MAX_NAME {
        legal.truncate(legal.floor_char_boundary(MAX_NAME - 7));
    }
    legal
}

/// Returns for each of several names one that is held, and that no other has; those that are held stay.
pub(super) fn held_names<'a>(
    names: impl Iterator<Item = &'a String> + Clone,
    is_held: impl Fn(&str) -> bool,
) -> Vec<String> {
    let own = names.clone().filter(|name| is_held(name));
    let mut taken: BTreeSet<String> = own.cloned().collect();
    let held = names.map(|name| {
        if is_held(name) {
            return name.clone();
        }
        let mut held = legal_name(name);
        while !is_held(&held) || taken.contains(&held) {
            held.push('_');
        }
        taken.insert(held.clone());
        held
    });
    held.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_netcdf_lacks_become_others() {
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
    fn no_two_attributes_get_one_name() {
        let names = ["a/b", "a\u{1}b", "a_b", "x"].map(str::to_string);
        let held = held_names(names.iter(), is_name);
        assert_eq!(held, ["a_b_", "a_b__", "a_b", "x"]);
    }
}
