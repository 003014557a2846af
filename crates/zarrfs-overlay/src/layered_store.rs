//! A layer of changes over a store: the layer's content, else the store's.
//!
//! A whiteout in the layer hides the store's content. This type changes nothing (`layered_reads` implements `Store`).
//! The store below may itself be a frozen layer. A reader keeps one `LayeredStore`, which stays the same while its
//! layer is frozen or committed.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::fs::{OFlags, Stat as Native};
use rustix::io::Errno;

use super::journal_line::ContentDigest;
use super::kept_attributes::KeptAttributes;
use super::keys_dir::os_error;
use super::layer::{ChangeLayer, Located};
use super::{Resolved, attributes};
use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{AttrChange, Posix, Stat};
use zarrfs_store::{ETag, EncodedBy, EntryKind, Key, Meta, Store, StoreInfo};

/// A layer of changes over a store.
pub(super) struct LayeredStore {
    pub(super) layer: Arc<ChangeLayer>,
    /// The frozen layer if there is one, else the store.
    pub(super) lower: Arc<dyn Store>,
    /// The layer below, if it is frozen.
    pub(super) frozen: Option<Arc<LayeredStore>>,
    pub(super) info: StoreInfo,
}

impl LayeredStore {
    /// Puts a layer over a frozen layer, or over the store.
    pub(super) fn over(
        layer: Arc<ChangeLayer>,
        store: &Arc<dyn Store>,
        frozen: Option<Arc<LayeredStore>>,
        info: StoreInfo,
    ) -> LayeredStore {
        let lower = match &frozen {
            Some(frozen) => frozen.clone(),
            None => store.clone(),
        };
        LayeredStore {
            layer,
            lower,
            frozen,
            info,
        }
    }

    /// Returns the place of the content or folder of a key, or `None` if it does not exist.
    pub(super) fn find(&self, context: &RequestContext, key: &Key) -> Result<Option<Resolved>> {
        loop {
            let lower = match self.layer.locate(key)? {
                Located::Upper(stat) => return Ok(Some(Resolved::Upper(stat))),
                Located::Hidden => return Ok(None),
                Located::Lower(lower) => lower,
            };
            let meta = self.lower.head(context, &lower)?;
            // A commit may have put the renamed object under its new name in the store since.
            if matches!(self.layer.locate(key)?, Located::Lower(now) if now == lower) {
                return Ok(meta.map(|meta| Resolved::Lower(lower, meta)));
            }
        }
    }

    /// Returns the key of the store that is visible at `key`, or `None` if a layer has or hides it.
    pub(super) fn stored_key(&self, key: &Key) -> Option<Key> {
        match (self.layer.locate(key).ok()?, &self.frozen) {
            (Located::Lower(lower), Some(frozen)) => frozen.stored_key(&lower),
            (Located::Lower(lower), None) => Some(lower),
            (Located::Upper(_) | Located::Hidden, _) => None,
        }
    }

    /// Whether all layers map a key to the same key of the store.
    pub(super) fn shows_own_key(&self, key: &Key) -> bool {
        let is_own = self.layer.lower_key(key).as_ref() == Some(key);
        is_own
            && self
                .frozen
                .as_ref()
                .is_none_or(|frozen| frozen.shows_own_key(key))
    }

    /// Returns the digests of contents that were sent to the store without an answer, so the store may have them.
    /// `None` stands for an erase.
    pub(super) fn tried(&self, key: &Key) -> Vec<Option<u128>> {
        let mut tried = self.layer.lock().records.tried(key).to_vec();
        tried.extend(self.frozen.iter().flat_map(|frozen| frozen.tried(key)));
        tried
    }

    /// Returns length and digest of the store's object when its key was first changed, if they are known.
    pub(super) fn base_content(&self, key: &Key) -> Option<ContentDigest> {
        let own = self.layer.base(key).and_then(|base| base.content);
        own.or_else(|| self.frozen.as_ref()?.base_content(key))
    }

    /// Returns the metadata that the chunk of a key was encoded with, in each layer that has changed the chunk.
    pub(super) fn encoded_by(&self, key: &Key) -> Vec<EncodedBy> {
        let state = self.layer.lock();
        let mut found: Vec<EncodedBy> = Vec::new();
        if state.records.base(key).is_some() {
            found.extend(state.records.encoded_by(key).map(|(_, by)| by.clone()));
        }
        drop(state);
        found.extend(self.frozen.iter().flat_map(|frozen| frozen.encoded_by(key)));
        found
    }

    /// Returns owner and mode of the layers' file of a key, or `None` if no layer has it.
    pub(super) fn stat_in_layers(&self, key: &Key) -> Result<Option<Posix>> {
        match (self.layer.locate(key)?, &self.frozen) {
            (Located::Upper(stat), _) => Ok(Some(attributes::posix_of(&stat))),
            (Located::Lower(lower), Some(frozen)) => frozen.stat_in_layers(&lower),
            _ => Ok(None),
        }
    }

    /// Returns owner and mode of the store's file at a key if the store is a local folder, else only the default mode.
    pub(super) fn stored_attributes(&self, key: &Key) -> AttrChange {
        let usual = AttrChange {
            mode: Some(DEFAULT_MODE),
            ..AttrChange::default()
        };
        self.stored_file(key).map_or(usual, |found| {
            let is_root = rustix::process::geteuid().is_root();
            AttrChange {
                mode: Some(found.mode() & attributes::PERMISSIONS),
                uid: is_root.then_some(found.uid()),
                gid: is_root.then_some(found.gid()),
                ..AttrChange::default()
            }
        })
    }

    fn stored_file(&self, key: &Key) -> Option<std::fs::Metadata> {
        let lower = self.stored_key(key)?;
        let store = self
            .frozen
            .as_ref()
            .map_or(&self.lower, |frozen| &frozen.lower);
        let path = store.info().folder.as_ref()?;
        let path = path.join(OsStr::from_bytes(lower.as_bytes()));
        let found = std::fs::symlink_metadata(path).ok()?;
        found.is_file().then_some(found)
    }

    /// Returns the kind of the found file or folder.
    pub(super) fn kind(found: &Resolved) -> EntryKind {
        match found {
            Resolved::Upper(stat) => attributes::kind_of(stat),
            Resolved::Lower(_, meta) => meta.kind,
        }
    }

    /// Returns the `stat` of a key without its kept attributes, and the kept attributes, which were set without its
    /// content.
    pub(super) fn stat(
        &self,
        context: &RequestContext,
        key: &Key,
    ) -> Result<(Option<Stat>, Option<Arc<KeptAttributes>>)> {
        loop {
            let kept = self.layer.kept_attributes(key)?;
            let found = self.find(context, key)?;
            let is_below = matches!(found, Some(Resolved::Lower(..)));
            let stat = self.stat_of(context, key, found)?;
            // A rename moves the kept attributes, and a new content takes them over.
            if self.layer.kept_attributes(key)? == kept {
                return Ok((stat, kept.filter(|_| is_below)));
            }
        }
    }

    /// Returns the `stat` of a found key. Files of a layer have their own owner and mode.
    fn stat_of(
        &self,
        context: &RequestContext,
        key: &Key,
        found: Option<Resolved>,
    ) -> Result<Option<Stat>> {
        Ok(match found {
            None => None,
            Some(Resolved::Upper(stat)) => Some(self.upper_stat(key, &stat)),
            Some(Resolved::Lower(lower, meta)) => match &self.frozen {
                Some(frozen) => frozen.stat_of(context, &lower, frozen.find(context, &lower)?)?,
                None => Some(stat_of_stored(meta)),
            },
        })
    }

    /// Returns the `stat` of a file or folder of the layer.
    pub(super) fn upper_stat(&self, key: &Key, stat: &Native) -> Stat {
        Stat {
            meta: self.layer.meta(key, stat),
            posix: Some(attributes::posix_of(stat)),
            content: stat.st_ino,
        }
    }

    /// Opens the file of a key in this layer or a frozen layer below; also returns the number of its last write. `None`
    /// if no layer has the file.
    pub(super) fn frozen_file(&self, key: &Key) -> Result<Option<(File, u64)>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        loop {
            match (self.layer.locate(key)?, &self.frozen) {
                (Located::Upper(_), _) => match self.layer.keys.open_key(key, flags) {
                    // It has left the layer since.
                    Err(Errno::NOENT) => {}
                    opened => {
                        let fd = opened.map_err(|error| os_error(key, error))?;
                        return Ok(Some((File::from(fd), self.layer.write_number(key))));
                    }
                },
                (Located::Lower(lower), Some(frozen)) => return frozen.frozen_file(&lower),
                _ => return Ok(None),
            }
        }
    }

    /// Calls `ask` with the store below and the key that is visible at `key`. Returns `None` if the layer has the key,
    /// or a whiteout hides it.
    pub(super) fn ask_below<T>(
        &self,
        key: &Key,
        ask: impl Fn(&dyn Store, &Key) -> Result<T>,
    ) -> Result<Option<T>> {
        loop {
            let Located::Lower(lower) = self.layer.locate(key)? else {
                return Ok(None);
            };
            let answer = ask(&*self.lower, &lower);
            // A commit may have put the renamed object under its new name in the store since, and the old key may have
            // another content.
            if lower == *key
                || matches!(self.layer.locate(key)?, Located::Lower(now) if now == lower)
            {
                return answer.map(Some);
            }
        }
    }
}

/// The mode of a file if the store does not know its mode.
const DEFAULT_MODE: u32 = 0o644;

/// Returns the `stat` of a key of the store, with the mount's owner and mode.
pub(super) fn stat_of_stored(meta: Meta) -> Stat {
    Stat {
        meta,
        posix: None,
        content: meta.version.number(),
    }
}

/// Returns an ETag of the content of a layer's file, made from its version.
pub(super) fn etag_of(meta: &Meta) -> ETag {
    ETag {
        text: format!("{:016x}", meta.version.number()),
        version: meta.version,
    }
}
