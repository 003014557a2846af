//! Makes names valid for netCDF, and renames attributes where necessary.
//!
//! As in NCO, an invalid character becomes an underscore, so nothing is left out because of its name.

use std::collections::{HashMap, HashSet};

/// Maximum length of a name in bytes.
const MAX_NAME: usize = 255;

/// Whether netCDF accepts a text as a name.
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

/// Returns a valid name: this one, or a similar one.
pub(crate) fn legal_name(name: &str) -> String {
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

/// Shortens a name, so that there is room for an underscore and a number.
fn shorten(name: &mut String) {
    let longest = MAX_NAME - 12;
    if name.len() <= longest {
        return;
    }
    let end = (0..=longest).rfind(|&end| name.is_char_boundary(end));
    name.truncate(end.unwrap_or(0));
}

/// Returns a unique valid name for each of several names; valid ones stay unchanged. An invalid name must become
/// valid with an underscore and a number appended.
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

/// Returns the candidate number `count` of a name: `a`, `a_`, `a_2`, `a_3`.
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
        let unique = unique_names(names.iter(), is_name);
        assert_eq!(unique, ["a_b_", "a_b_2", "a_b", "x"]);
    }

    #[test]
    fn many_long_names_get_one_each() {
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
