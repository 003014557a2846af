//! Reads and writes each kind of store: one folder or file for each kind.
//!
//! `remote_url` opens the stores behind a network, and `remote` has the code that these stores share. `current` reads
//! an archive or a reference file again after a change.
//!
//! A backend only reads and writes its own kind of store. Statistics, caching and prefetching are the work of `layer`.

use std::fmt::Display;

use crate::Key;
use zarr_format::error::{Error, Kind};

mod bucket;
mod current;
mod http;
pub mod local;
pub mod memory;
pub mod reference;
mod remote;
pub(crate) mod remote_url;
pub mod zip;

pub use remote::login::{Login, default_netrc};

fn is_a_directory(subject: impl Display) -> Error {
    Error::new(Kind::IsADirectory, subject, "is a directory")
}

fn not_a_directory(prefix: &Key) -> Error {
    Error::new(Kind::NotADirectory, prefix, "is an object, not a directory")
}

/// Returns the error for an object whose length exceeds the caller's limit.
fn too_long(subject: impl Display, length: u64, limit: u64) -> Error {
    Error::too_large(
        subject,
        format!("{length} bytes exceed the limit of {limit}"),
    )
}

/// Returns the error for an object that has changed since it was opened.
fn changed(key: &Key) -> Error {
    Error::new(Kind::Changed, key, "was changed while it was open")
}

fn cannot_list(prefix: &Key) -> Error {
    Error::unsupported(prefix, "the server does not list names")
}

/// Returns the bytes from `start` to `end`, or fewer if `bytes` is shorter.
fn slice(bytes: &[u8], start: u64, end: u64) -> Vec<u8> {
    let clamp = |place: u64| {
        usize::try_from(place)
            .unwrap_or(usize::MAX)
            .min(bytes.len())
    };
    bytes
        .get(clamp(start)..clamp(end))
        .unwrap_or_default()
        .to_vec()
}

/// Implements `Debug` by the name of a type alone, since its fields may contain secrets or have no `Debug`.
macro_rules! opaque_debug {
    ($name:ident $(<$generic:ident>)?) => {
        impl$(<$generic>)? std::fmt::Debug for $name$(<$generic>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}
use opaque_debug;
