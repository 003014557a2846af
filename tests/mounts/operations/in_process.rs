//! Sends requests to a `Vfs` as the kernel would, without a mount.
//!
//! It looks up each name of a path, asks first without waiting for the store, follows links, and retries once after
//! ESTALE.

use std::sync::Arc;

use rustix::io::Errno;
use zarrfs::vfs::{Caller, DirEntry, Fh, Ino, Vfs, VfsConfig};
use zarrfs::view::{Attr, View};
use zarrfs_store::EntryKind;
use zarrfs_store::stats::Stats;

use crate::common::waiting;
use crate::operations::backend::{Answer, Backend, Listed, OpenFile, Stat};
use zarrfs_store::request_context::{RequestContext, UNLIMITED, is_answer};

struct InProcess {
    vfs: Vfs,
}

/// Makes a backend that sends requests to a view without the kernel.
pub(crate) fn enter(view: Arc<dyn View>) -> Box<dyn Backend> {
    let config = VfsConfig {
        uid: 0,
        gid: 0,
        umask: 0,
        writable: false,
    };
    Box::new(InProcess {
        vfs: Vfs::new(view, config, Arc::new(Stats::default())),
    })
}

/// The kernel's maximum number of symbolic links in one path lookup (MAXSYMLINKS).
const MOST_LINKS: usize = 40;

/// The approximate number of names in a READDIR reply of the kernel's size.
const PAGE: usize = 500;

impl InProcess {
    fn look_up(&self, parent: Ino, name: &[u8]) -> Answer<(Ino, Attr)> {
        let found = waiting::ask(|context| self.vfs.lookup(context, parent, name, caller()));
        let entry = found.map_err(|error| error.errno())?;
        let entry = entry.ok_or(Errno::NOENT.raw_os_error())?;
        Ok((entry.ino, entry.attr))
    }

    fn attributes(&self, ino: Ino) -> Answer<Attr> {
        let attr = waiting::ask(|context| self.vfs.getattr(context, ino, caller()));
        attr.map_err(|error| error.errno())
    }

    /// Looks up a path. `follow` tells whether a symbolic link at its end is followed.
    fn walk(&self, path: &str, follow: bool) -> Answer<(Ino, Attr)> {
        let names = |path: &[u8]| -> Vec<Vec<u8>> {
            let names = path.split(|&byte| byte == b'/');
            names
                .rev()
                .filter(|name| !name.is_empty())
                .map(<[u8]>::to_vec)
                .collect()
        };
        let mut way = vec![(Ino::ROOT, self.attributes(Ino::ROOT)?)];
        let mut todo = names(path.as_bytes());
        let mut links = 0;
        while let Some(name) = todo.pop() {
            let (parent, attr) = *way.last().unwrap();
            if attr.kind != EntryKind::Directory {
                return Err(Errno::NOTDIR.raw_os_error());
            }
            match name.as_slice() {
                b"." => continue,
                b".." if way.len() > 1 => {
                    way.pop();
                    continue;
                }
                _ => {}
            }
            let (ino, attr) = self.look_up(parent, &name)?;
            if attr.kind != EntryKind::Link || (todo.is_empty() && !follow) {
                way.push((ino, attr));
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::LOOP.raw_os_error());
            }
            let target = self
                .vfs
                .read_link(&UNLIMITED, ino)
                .map_err(|error| error.errno())?;
            assert!(!target.starts_with(b"/"), "it would leave the mount");
            todo.extend(names(&target));
        }
        Ok(*way.last().unwrap())
    }
}

/// Returns this thread as the caller that the kernel would name in a request.
fn caller() -> Caller {
    Caller(rustix::thread::gettid().as_raw_pid().unsigned_abs())
}

/// Retries once after ESTALE as the kernel does, because a name may be replaced after its lookup.
fn again_if_stale<T>(ask: impl Fn() -> Answer<T>) -> Answer<T> {
    match ask() {
        Err(errno) if errno == Errno::STALE.raw_os_error() => ask(),
        answer => answer,
    }
}

impl Backend for InProcess {
    fn stat(&self, path: &str) -> Answer<Stat> {
        again_if_stale(|| {
            let (ino, found) = self.walk(path, false)?;
            let attr = self.attributes(ino)?;
            if (attr.kind, attr.size) != (found.kind, found.size) {
                // Return ESTALE, because the file changed between its lookup and this request.
                return Err(Errno::STALE.raw_os_error());
            }
            Ok(Stat {
                kind: attr.kind,
                size: attr.size,
                ino: ino.0,
            })
        })
    }

    fn list_after(&self, context: &RequestContext, path: &str, cursor: u64) -> Answer<Vec<Listed>> {
        let fh = again_if_stale(|| {
            let (ino, attr) = self.walk(path, true)?;
            // Refuse other files, because the kernel sends OPENDIR for directories only.
            if attr.kind != EntryKind::Directory {
                return Err(Errno::NOTDIR.raw_os_error());
            }
            let opened = self.vfs.opendir(context, ino, caller());
            opened.map_err(|error| error.errno())
        })?;
        let mut listed: Vec<Listed> = Vec::new();
        let mut before = usize::MAX;
        while before != listed.len() {
            before = listed.len();
            let at = listed.last().map_or(cursor, |last| last.cursor);
            let mut take = |entry: DirEntry<'_>| {
                let taken = listed.len() < before + PAGE;
                if taken {
                    listed.push(Listed {
                        name: entry.name.to_vec(),
                        kind: entry.kind,
                        ino: entry.ino.0,
                        cursor: entry.cursor,
                    });
                }
                taken
            };
            let page = self.vfs.readdir(context, fh, at, &mut take);
            if let Err(error) = page {
                self.vfs.releasedir(fh);
                return Err(error.errno());
            }
        }
        self.vfs.releasedir(fh);
        Ok(listed)
    }

    fn open(&self, context: &RequestContext, path: &str) -> Answer<Box<dyn OpenFile + '_>> {
        let opened = again_if_stale(|| {
            let (ino, _) = self.walk(path, true)?;
            let opened = self.vfs.open(context, ino, caller());
            opened.map_err(|error| error.errno())
        })?;
        let (vfs, fh) = (&self.vfs, opened.fh);
        Ok(Box::new(Handle { vfs, fh }))
    }

    fn read_link(&self, context: &RequestContext, path: &str) -> Answer<Vec<u8>> {
        let (ino, _) = self.walk(path, false)?;
        self.vfs
            .read_link(context, ino)
            .map_err(|error| error.errno())
    }
}

struct Handle<'a> {
    vfs: &'a Vfs,
    fh: Fh,
}

impl OpenFile for Handle<'_> {
    fn read(&self, context: &RequestContext, offset: u64, len: usize) -> Answer<Vec<u8>> {
        let in_memory = context.without_waiting();
        let mut bytes = self.vfs.read(&in_memory, self.fh, offset, len);
        if !is_answer(&bytes) {
            bytes = self.vfs.read(context, self.fh, offset, len);
        }
        Ok(bytes.map_err(|error| error.errno())?.to_vec())
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        self.vfs.release(&UNLIMITED, self.fh);
    }
}
