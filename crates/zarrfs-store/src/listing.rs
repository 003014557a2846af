//! Listings of directories, and the entries that they hide.

use parking_lot::Mutex;

use crate::request_context::RequestContext;
use crate::{EntryKind, Key, Meta};
use zarr_format::error::{Result, printable};
use zarr_format::model::document::is_in_node_folder;

/// One name in the listing of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The last component of the entry's key.
    pub name: Vec<u8>,
    /// Whether the entry is a file, a directory or a link.
    pub kind: EntryKind,
    /// The cursor with which a listing continues after this name. It is never 0, and stays the same while the directory
    /// does not change.
    pub cursor: u64,
    /// The metadata that `head` would return, if the listing has them.
    pub meta: Option<Meta>,
}

/// A directory read name by name, in constant memory.
pub trait Listing: Send {
    /// Returns the directory's next name, or `None` at the end.
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>>;
    /// Continues after the name with the given `cursor`, or from the beginning for 0.
    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()>;
    /// Whether the next name may have to be requested from the network.
    fn may_wait(&self) -> bool {
        true
    }
    /// Returns which names the listing omits although their objects may exist.
    fn left_out(&self) -> LeftOut {
        LeftOut::Nothing
    }
}

/// The kind of names that a listing omits although their objects may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// The listing is complete.
    Nothing,
    /// Names that begin with a dot may be missing from the listing, since nginx and Apache hide them.
    DotNames,
    /// Names that begin with a dot may be missing from the listing, except those of metadata documents, which were
    /// requested one by one.
    DotNamesButDocuments,
    /// Any name may be missing: the store cannot list, and the names come from another source, such as metadata.
    Any,
}

impl LeftOut {
    /// Whether an object with the given name may exist although the listing does not have it.
    pub fn may_have(self, name: &[u8]) -> bool {
        let is_hidden = name.starts_with(b".");
        match self {
            LeftOut::Nothing => false,
            LeftOut::DotNames => is_hidden,
            LeftOut::DotNamesButDocuments => is_hidden && !is_in_node_folder(name),
            LeftOut::Any => true,
        }
    }
}

/// A recursive listing of all objects under a prefix, page by page.
pub trait FlatListing: Send {
    /// Returns the next page of objects with their full keys, or `None` after the last page.
    fn next(&mut self, context: &RequestContext) -> Result<Option<Vec<(Key, Meta)>>>;
    /// Whether the listing's last page was returned. Makes no request.
    fn has_ended(&self) -> bool;
}

/// A listing of names that are in memory. The cursor of a name is its position, counted from 1.
pub struct NameList {
    names: Vec<Name>,
    next: usize,
    left_out: LeftOut,
}

impl NameList {
    /// Builds a listing of files and directories in the given order.
    pub fn new(names: impl IntoIterator<Item = (Vec<u8>, EntryKind)>) -> NameList {
        let plain = names.into_iter();
        NameList::with_meta(plain.map(|(name, kind)| (name, kind, None)))
    }

    /// Builds a listing of entries in the given order, with the metadata that `head` would return, if known.
    pub(crate) fn with_meta(
        names: impl IntoIterator<Item = (Vec<u8>, EntryKind, Option<Meta>)>,
    ) -> NameList {
        let numbered = names.into_iter().zip(1..);
        NameList {
            names: numbered
                .map(|((name, kind, meta), cursor)| Name {
                    name,
                    kind,
                    cursor,
                    meta,
                })
                .collect(),
            next: 0,
            left_out: LeftOut::Nothing,
        }
    }

    /// Sets which names the listing omits although their objects may exist.
    pub fn leaving_out(self, left_out: LeftOut) -> NameList {
        NameList { left_out, ..self }
    }
}

impl Listing for NameList {
    fn next(&mut self, _context: &RequestContext) -> Result<Option<Name>> {
        let name = self.names.get(self.next).cloned();
        self.next += usize::from(name.is_some());
        Ok(name)
    }

    fn seek(&mut self, _context: &RequestContext, cursor: u64) -> Result<()> {
        self.next = usize::try_from(cursor).unwrap_or(usize::MAX);
        Ok(())
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn left_out(&self) -> LeftOut {
        self.left_out
    }
}

/// An entry of an archive or bucket that is not shown, or is shown under another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenEntry {
    /// The entry's name in the archive or bucket.
    pub name: Vec<u8>,
    /// The key that the name stands for, or `None` if the name is not a plain path (it has `..`, for example).
    pub key: Option<Key>,
    /// Why the entry is not shown under its own name.
    pub why: HiddenReason,
}

/// Why an entry of an archive or bucket is not shown, or is shown under another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HiddenReason {
    /// The name is not a plain path: it has `..`, for example.
    NoPath,
    /// The entry is a symbolic link, a pipe or a device.
    Special,
    /// A later entry of the archive has the same name.
    Replaced,
    /// The entry is shown under a corrected name. Only the first such entry is recorded.
    Respelled,
}

/// The entries of an archive or bucket that no listing shows. An archive's are found when it is opened, a bucket's by
/// listings; only the first ones are recorded.
#[derive(Debug, Default)]
pub struct HiddenEntries(Mutex<Vec<HiddenEntry>>);

impl HiddenEntries {
    pub(crate) fn new(entries: Vec<HiddenEntry>) -> HiddenEntries {
        HiddenEntries(Mutex::new(entries))
    }

    /// Records a name in a bucket that is not a plain path, up to a hundred names. Only the first name is logged.
    pub(crate) fn record(&self, name: &str) {
        let mut entries = self.0.lock();
        let is_known = |entry: &HiddenEntry| entry.name == name.as_bytes();
        if entries.len() >= 100 || entries.iter().any(is_known) {
            return;
        }
        if entries.is_empty() {
            log::warn!(
                "hidden keys that are not plain paths, the first '{}'",
                printable(name)
            );
        }
        entries.push(HiddenEntry {
            name: name.as_bytes().to_vec(),
            key: None,
            why: HiddenReason::NoPath,
        });
    }

    /// Returns the hidden entries that were found so far.
    pub fn all(&self) -> Vec<HiddenEntry> {
        self.0.lock().clone()
    }
}
