//! A kernel mount, served by threads of this process and unmounted when dropped.

use std::ffi::CStr;
use std::fs;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, SeekFrom};
use rustix::process;
use tempfile::TempDir;
use zarrfs::fuse::kernel_mount;
use zarrfs::fuse::kernel_mount::{Flags, MountRequest};
use zarrfs::fuse::session::{MountSession, SessionSettings};
use zarrfs::vfs::{Vfs, VfsConfig};
use zarrfs::view::View;
use zarrfs_store::EntryKind;
use zarrfs_store::stats::Stats;

use crate::operations::backend::{Answer, Backend, Listed, OpenFile, Stat};
use zarrfs_store::request_context::RequestContext;

pub(crate) struct Mounted {
    folder: TempDir,
    session: Option<MountSession>,
    ended: Mutex<mpsc::Receiver<()>>,
}

/// Makes a backend from a view by mounting it.
pub(crate) fn enter(view: Arc<dyn View>) -> Box<dyn Backend> {
    Box::new(Mounted::new(view, Duration::from_secs(60), false))
}

/// The umask of the mounts of these tests.
pub(crate) const UMASK: u32 = 0o027;

impl Mounted {
    /// Mounts a view. A request that takes longer than `timeout` fails with EIO.
    pub(crate) fn new(view: Arc<dyn View>, timeout: Duration, read_only: bool) -> Mounted {
        Mounted::serving(view, timeout, (read_only, false), true)
    }

    /// Mounts a view read-only. `is_local` tells whether its store counts as a local folder.
    pub(crate) fn of(view: Arc<dyn View>, timeout: Duration, is_local: bool) -> Mounted {
        Mounted::serving(view, timeout, (true, false), is_local)
    }

    pub(crate) fn writable(view: Arc<dyn View>) -> Mounted {
        Mounted::writable_within(view, Duration::from_secs(60))
    }

    /// Mounts a view whose files can be changed. A request that takes longer than `timeout` fails with EIO.
    pub(crate) fn writable_within(view: Arc<dyn View>, timeout: Duration) -> Mounted {
        Mounted::serving(view, timeout, (false, true), true)
    }

    fn serving(
        view: Arc<dyn View>,
        timeout: Duration,
        (read_only, writable): (bool, bool),
        is_local: bool,
    ) -> Mounted {
        let folder = tempfile::tempdir().unwrap();
        let config = VfsConfig {
            uid: process::geteuid().as_raw(),
            gid: process::getegid().as_raw(),
            umask: UMASK,
            writable,
        };
        let stats = Arc::new(Stats::default());
        let vfs = Arc::new(Vfs::new(view, config, stats.clone()));
        let connection = kernel_mount::mount(&MountRequest {
            source: "test".to_string(),
            path: folder.path().canonicalize().unwrap(),
            flags: Flags {
                read_only,
                ..Flags::default()
            },
            ..MountRequest::default()
        });
        let settings = SessionSettings {
            passthrough: false,
            is_local,
            timeout,
            readahead: 1 << 20,
        };
        let (sender, ended) = mpsc::channel();
        let end = move || sender.send(()).unwrap_or_default();
        let session = MountSession::start(connection.unwrap(), vfs, stats, settings, end).unwrap();
        Mounted {
            folder,
            session: Some(session),
            ended: Mutex::new(ended),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir().join(path)
    }

    /// Unmounts the view; returns whether the session ends within `time`.
    pub(crate) fn end_within(&mut self, time: Duration) -> bool {
        drop(self.session.take());
        self.ended.lock().unwrap().recv_timeout(time).is_ok()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.session.is_some() {
            let ended = self.end_within(Duration::from_secs(20));
            assert!(
                ended || std::thread::panicking(),
                "the session does not end"
            );
        }
    }
}

pub(crate) fn errno(error: io::Error) -> i32 {
    error.raw_os_error().unwrap()
}

fn listed(name: &CStr, kind: FileType, ino: u64, cursor: u64) -> Listed {
    let kind = match kind {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        other => panic!("{name:?} is listed as {other:?}"),
    };
    let name = name.to_bytes().to_vec();
    Listed {
        name,
        kind,
        ino,
        cursor,
    }
}

impl Backend for Mounted {
    fn stat(&self, path: &str) -> Answer<Stat> {
        let meta = fs::symlink_metadata(self.path(path)).map_err(errno)?;
        let kind = match (meta.is_file(), meta.is_dir()) {
            (true, _) => EntryKind::File,
            (_, true) => EntryKind::Directory,
            _ if meta.is_symlink() => EntryKind::Link,
            _ => panic!("{path} is {:?}", meta.file_type()),
        };
        Ok(Stat {
            kind,
            size: meta.size(),
            ino: meta.ino(),
        })
    }

    fn list_after(
        &self,
        _context: &RequestContext,
        path: &str,
        cursor: u64,
    ) -> Answer<Vec<Listed>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, self.path(path), flags, Mode::empty());
        let fd = fd.map_err(|error| error.raw_os_error())?;
        if cursor > 0 {
            rustix::fs::seek(&fd, SeekFrom::Start(cursor)).map_err(|error| error.raw_os_error())?;
        }
        let mut buffer = vec![MaybeUninit::uninit(); 32 << 10];
        let mut entries = RawDir::new(fd, &mut buffer);
        let mut found = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|error| error.raw_os_error())?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                let cursor = entry.next_entry_cookie();
                found.push(listed(name, entry.file_type(), entry.ino(), cursor));
            }
        }
        Ok(found)
    }

    fn open(&self, _context: &RequestContext, path: &str) -> Answer<Box<dyn OpenFile + '_>> {
        let file = File::open(self.path(path)).map_err(errno)?;
        Ok(Box::new(file))
    }

    fn read_link(&self, _context: &RequestContext, path: &str) -> Answer<Vec<u8>> {
        let target = fs::read_link(self.path(path)).map_err(errno)?;
        Ok(target.into_os_string().into_vec())
    }
}

impl OpenFile for File {
    fn read(&self, _context: &RequestContext, offset: u64, len: usize) -> Answer<Vec<u8>> {
        let mut bytes = vec![0; len];
        let read = self.read_at(&mut bytes, offset).map_err(errno)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}
