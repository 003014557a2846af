//! Runs actors on an overlay in this process, for more interleavings than on mounts.

use std::sync::Arc;

use tempfile::TempDir;
use zarr_format::error::{Kind, Result};
use zarrfs_overlay::Overlay;
use zarrfs_overlay::commit::CommitConfig;
use zarrfs_store::tree::{AttrChange, Credentials, RenameMode, Tree, TreeFile};
use zarrfs_store::{Key, Reader, Store};

use crate::concurrency::fixture::{folder, key, open_file, open_overlay};
use crate::concurrency::history::Failure;
use crate::concurrency::world::{Committed, Held, InPlace, Tried, World, found, refused};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

const MAKER: Credentials = Credentials {
    uid: 0,
    gid: 0,
    mode: 0o644,
};

const LIMIT: u64 = 1 << 20;

pub(crate) struct InProcess {
    overlay: Overlay,
    _folder: TempDir,
}

impl InProcess {
    pub(crate) fn new(lower: Arc<dyn Store>, write_through: bool) -> InProcess {
        let folder = folder();
        InProcess {
            overlay: open_overlay(&folder.path().join("upper"), lower, write_through),
            _folder: folder,
        }
    }

    fn writable(&self, path: &Key, truncate: bool) -> Result<Arc<dyn TreeFile>> {
        match open_file(&self.overlay, path, truncate) {
            Err(error) if error.kind() == Kind::NotFound => {
                self.overlay.create(&UNLIMITED, path, &MAKER)
            }
            opened => opened,
        }
    }
}

fn resized(size: u64) -> AttrChange {
    AttrChange {
        size: Some(size),
        ..AttrChange::default()
    }
}

struct OpenReader(Arc<dyn Reader>);

impl Held for OpenReader {
    fn read(&self, context: &RequestContext) -> Tried<Vec<u8>> {
        let read = || {
            let size = self.0.meta(context)?.size;
            self.0.read_at(context, 0, size as usize)
        };
        read().map_err(refused("read"))
    }
}

impl World for InProcess {
    fn replace(
        &self,
        context: &RequestContext,
        path: &str,
        temporary: &str,
        bytes: &[u8],
        synced: bool,
    ) -> Tried<()> {
        let file = self.overlay.create(context, &key(temporary), &MAKER);
        let file = file.map_err(refused("create"))?;
        file.write_at(context, 0, bytes).map_err(refused("write"))?;
        if synced {
            file.sync(context).map_err(refused("fsync"))?;
        }
        file.flush(context).map_err(refused("close"))?;
        drop(file);
        let (from, to) = (key(temporary), key(path));
        let renamed = self
            .overlay
            .rename(context, &from, &to, RenameMode::Replace);
        renamed.map_err(refused("rename"))
    }

    fn overwrite(
        &self,
        context: &RequestContext,
        path: &str,
        bytes: &[u8],
        how: InPlace,
    ) -> Tried<()> {
        let emptied = how == InPlace::Emptied;
        let file = self.writable(&key(path), emptied);
        let file = file.map_err(refused("open"))?;
        let middle = bytes.len() / 2;
        let write = || {
            file.write_at(context, 0, &bytes[..middle])?;
            file.write_at(context, middle as u64, &bytes[middle..])?;
            if !emptied {
                file.change(context, &resized(bytes.len() as u64))?;
            }
            Ok(())
        };
        write().map_err(refused("write"))?;
        file.flush(context).map_err(refused("close"))
    }

    fn append(&self, context: &RequestContext, path: &str, bytes: &[u8]) -> Tried<()> {
        let file = open_file(&self.overlay, &key(path), false).map_err(refused("open"))?;
        let append = || file.write_at(context, file.stat(context)?.meta.size, bytes);
        append().map_err(refused("write"))?;
        file.flush(context).map_err(refused("close"))
    }

    fn truncate(&self, context: &RequestContext, path: &str, length: u64) -> Tried<()> {
        let done = Tree::change(&self.overlay, context, &key(path), &resized(length));
        done.map_err(refused("truncate"))
    }

    fn remove(&self, context: &RequestContext, path: &str) -> Tried<()> {
        self.overlay
            .unlink(context, &key(path))
            .map_err(refused("unlink"))
    }

    fn rename(&self, context: &RequestContext, from: &str, to: &str) -> Tried<()> {
        let renamed = self
            .overlay
            .rename(context, &key(from), &key(to), RenameMode::Replace);
        renamed.map_err(refused("rename"))
    }

    fn read(&self, context: &RequestContext, path: &str) -> Tried<Option<Vec<u8>>> {
        let object = Store::get(&self.overlay, context, &key(path), LIMIT);
        // A store that changed during each read is an error that a program gets only for a file that it has open.
        let object = object.map_err(|error| match error.kind() {
            Kind::Changed => refused("read")(error),
            _ => refused("get")(error),
        })?;
        Ok(object.map(|object| object.bytes))
    }

    fn length(&self, context: &RequestContext, path: &str) -> Tried<Option<u64>> {
        let stat = Tree::stat(&self.overlay, context, &key(path)).map_err(refused("stat"))?;
        Ok(stat.map(|stat| stat.meta.size))
    }

    fn names(&self, context: &RequestContext, folder: &str) -> Tried<Vec<String>> {
        let list = || {
            let mut names = Vec::new();
            let mut listing = self.overlay.list(context, &key(folder))?;
            while let Some(name) = listing.next(context)? {
                names.push(String::from_utf8_lossy(&name.name).into_owned());
            }
            Ok(names)
        };
        Ok(found(list().map_err(refused("list")))?.unwrap_or_default())
    }

    fn hold(&self, context: &RequestContext, path: &str) -> Tried<Option<Box<dyn Held>>> {
        let opened =
            found(Store::open(&self.overlay, context, &key(path), None).map_err(refused("open")))?;
        Ok(opened.map(|reader| Box::new(OpenReader(reader)) as Box<dyn Held>))
    }

    fn read_decoded(&self, _array: &str, _chunk: u64) -> Tried<Vec<u8>> {
        Err(Failure::new("there is no files view", libc::ENOSYS))
    }

    fn write_decoded(&self, _array: &str, _chunk: u64, _bytes: &[u8]) -> Tried<()> {
        Err(Failure::new("there is no files view", libc::ENOSYS))
    }

    fn commit(&self, context: &RequestContext) -> Tried<Committed> {
        let outcome = self
            .overlay
            .commit(context, CommitConfig::default(), &|_, _| {})
            .and_then(zarrfs_overlay::commit::Outcome::or_failed);
        let outcome = outcome.map_err(refused("commit"))?;
        let names = |list: &[(Key, String)]| list.iter().map(|(key, _)| key.to_string()).collect();
        let kept = outcome.uncommittable.iter().map(|(key, _)| key.to_string());
        Ok(Committed {
            conflicts: names(&outcome.conflicts),
            kept: kept.collect(),
        })
    }

    fn discard(&self, context: &RequestContext, path: &str) -> Tried<bool> {
        let discarded = found(
            self.overlay
                .discard(context, &key(path))
                .map_err(refused("discard")),
        )?;
        Ok(discarded.is_some())
    }

    fn kill(&self) {}

    fn server(&self) -> Option<u32> {
        Some(0)
    }

    fn left_over(&self, context: &RequestContext) -> Vec<String> {
        let changes = self.overlay.changes(context).unwrap();
        let kept = changes
            .uncommittable
            .iter()
            .filter(|(_, why)| *why != "empty directory");
        let keys = changes.keys.iter().map(|change| change.key.to_string());
        keys.chain(kept.map(|(key, why)| format!("{key}, {why}")))
            .collect()
    }

    fn has_decoded(&self) -> bool {
        false
    }
}
