//! Defines the keys of stored objects; no key can leave its store.

use std::fmt;

use crate::error::{Error, Kind, Result, printable};

/// Key of an object in a store: components joined by `/`. No component is empty, `.` or `..`, is longer than 255 bytes,
/// or contains a NUL, so it is a valid file name. The empty key is the root of the store. Bytes need not be UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Key(Vec<u8>);

impl Key {
    /// Returns the empty key, the root of the store.
    pub fn root() -> Key {
        Key::default()
    }

    /// Builds a key from bytes; fails with `Invalid` if a component is not a valid name.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Key> {
        let bytes = bytes.into();
        if !bytes.is_empty() {
            for name in bytes.split(|&b| b == b'/') {
                check_name(name)?;
            }
        }
        Ok(Key(bytes))
    }

    /// Returns the key of the child `name`; fails with `NameTooLong` or `Invalid` if it is not a valid name.
    pub fn child(&self, name: &[u8]) -> Result<Key> {
        check_name(name)?;
        if name.contains(&b'/') {
            return Err(Error::invalid(
                Key(name.to_vec()),
                "a name cannot contain a slash",
            ));
        }
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Ok(Key(bytes))
    }

    /// Returns the key of the parent folder, or `None` for the root of the store.
    pub fn parent(&self) -> Option<Key> {
        if self.is_root() {
            return None;
        }
        let end = self.0.iter().rposition(|&b| b == b'/').unwrap_or(0);
        Some(Key(self.0.get(..end).unwrap_or_default().to_vec()))
    }

    /// Returns the last component of the key; empty for the root of the store.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|&b| b == b'/').next().unwrap_or_default()
    }

    /// Returns the components of the key, which are separated by slashes.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/').filter(|name| !name.is_empty())
    }

    /// Returns the key relative to the folder `prefix`, or `None` if it is not inside that folder.
    pub fn below(&self, prefix: &Key) -> Option<Key> {
        if prefix.is_root() {
            return Some(self.clone());
        }
        match self.0.strip_prefix(prefix.0.as_slice())? {
            [] => Some(Key::root()),
            [b'/', rest @ ..] => Some(Key(rest.to_vec())),
            _ => None,
        }
    }

    /// Whether the key is the root of the store.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str("/");
        }
        f.write_str(&printable(&String::from_utf8_lossy(&self.0)))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    let printed = || printable(&String::from_utf8_lossy(name));
    // The kernel accepts no name of more than 255 bytes.
    if name.len() > 255 {
        return Err(Error::new(
            Kind::NameTooLong,
            printed(),
            "the name is longer than 255 bytes",
        ));
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&0) {
        return Err(Error::invalid(
            format!("'{}'", printed()),
            "is not a valid name",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant of `links_out_of_a_store_and_pipes_are_not_read`.
    #[test]
    fn keys_that_could_leave_the_store_are_refused() {
        for bad in ["..", "a/../b", "a//b", "/a", "a/", ".", "a\0"] {
            assert!(Key::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            Key::new("x".repeat(256)).unwrap_err().kind(),
            Kind::NameTooLong
        );
    }

    #[test]
    fn keys_may_contain_any_other_bytes() {
        let key = Key::new(b"a/\xff\n \\".to_vec()).unwrap();
        assert_eq!(key.name(), b"\xff\n \\");
        assert_eq!(key.parent(), Some(Key::new("a").unwrap()));
        assert_eq!(
            key.below(&Key::new("a").unwrap()).unwrap().as_bytes(),
            b"\xff\n \\"
        );
        assert_eq!(Key::new("ab").unwrap().below(&Key::new("a").unwrap()), None);
    }
}
