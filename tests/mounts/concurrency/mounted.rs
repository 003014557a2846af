//! Lets actors work on a mount: by system calls, zarrfs commands, and kills.

use std::ffi::OsStr;
use std::fs;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::concurrency::calls;
use crate::concurrency::fixture::folder;
use crate::concurrency::history::Failure;
use crate::concurrency::value::CHUNK;
use crate::concurrency::world::{Committed, Held, InPlace, Tried, World, failed, found};
use zarrfs_store::request_context::RequestContext;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_zarrfs");

const COMES_BACK: Duration = Duration::from_secs(30);

/// Repeats a call while it fails with EBUSY, for at most 30 s. All writers share one array, so on a busy machine other
/// writers may have its decoded file, or one of its chunks, open for longer than the mount waits for their close.
fn when_closed<T>(call: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    let end = Instant::now() + COMES_BACK;
    loop {
        match call() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

/// A mountpoint and its mount options; processes that did not mount it use it, too.
#[derive(Clone)]
pub(crate) struct MountPoint {
    folder: PathBuf,
    store: String,
    options: Vec<String>,
    variables: Vec<(String, String)>,
    /// Whether the mountpoint is a plain directory, on which zarrfs is never mounted.
    is_plain: bool,
}

/// A mount made by this process, which is unmounted when the value is dropped.
pub(crate) struct Mounted {
    pub(crate) point: MountPoint,
    _folder: TempDir,
}

impl Mounted {
    /// Prepares a mount in a temporary folder; `place` gets a folder for the store, and returns the path or URL to
    /// mount.
    pub(crate) fn new(place: impl FnOnce(&Path) -> String) -> Mounted {
        let folder = folder();
        for name in ["mount", "store"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let point = MountPoint {
            folder: folder.path().canonicalize().unwrap(),
            store: place(&folder.path().join("store")),
            options: Vec::new(),
            variables: Vec::new(),
            is_plain: false,
        };
        Mounted {
            point,
            _folder: folder,
        }
    }

    pub(crate) fn with(mut self, options: &[&str], variables: &[(&str, &str)]) -> Mounted {
        let owned = |text: &&str| text.to_string();
        self.point.options.extend(options.iter().map(owned));
        let pairs = variables.iter();
        let pairs = pairs.map(|(name, value)| (name.to_string(), value.to_string()));
        self.point.variables.extend(pairs);
        self
    }

    /// Mounts the store; the upper folder is `upper`, beside the mountpoint.
    pub(crate) fn mount(&self) {
        let output = self.point.try_mount();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let daemon = self.point.daemon();
        let dir = self.point.dir();
        // The command fails if the directory is no longer mounted.
        let _ = Command::new("umount").arg("-l").arg(dir).output();
        if let Some(daemon) = daemon {
            let _ = process::kill_process(daemon, Signal::KILL);
        }
    }
}

impl MountPoint {
    /// Returns the mountpoint in a folder that another process has set up.
    pub(crate) fn attached(folder: &Path) -> MountPoint {
        MountPoint {
            folder: folder.to_path_buf(),
            store: String::new(),
            options: Vec::new(),
            variables: Vec::new(),
            is_plain: !folder.join("upper").exists(),
        }
    }

    /// Makes a plain directory, without a mount, in place of a mountpoint.
    pub(crate) fn plain(folder: &Path) -> MountPoint {
        fs::create_dir(folder.join("mount")).unwrap();
        MountPoint::attached(folder)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.join("mount")
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// Waits until the daemon has removed the files that recorded commits, which it does after the commits.
    fn wait_for_removals(&self) {
        let is_committed = |entry: fs::DirEntry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with("committed-")
        };
        let are_there = || {
            fs::read_dir(self.upper())
                .unwrap()
                .flatten()
                .any(is_committed)
        };
        let end = Instant::now() + COMES_BACK;
        while are_there() && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn upper(&self) -> PathBuf {
        self.folder.join("upper")
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir().join(path)
    }

    pub(crate) fn zarrfs<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(arguments);
        for (name, value) in &self.variables {
            command.env(name, value);
        }
        command.output().unwrap()
    }

    fn try_mount(&self) -> Output {
        let (dir, upper) = (self.dir(), self.upper());
        let mut arguments: Vec<&OsStr> = vec!["mount".as_ref(), self.store.as_ref()];
        arguments.extend([dir.as_os_str(), "--cow".as_ref(), upper.as_os_str()]);
        arguments.extend(self.options.iter().map(OsStr::new));
        self.zarrfs(&arguments)
    }

    /// Returns the process that serves the mount, or `None` if the mount does not answer.
    fn daemon(&self) -> Option<Pid> {
        let text = fs::read(self.path(".zarrfs/mount.json")).ok()?;
        let value: Value = serde_json::from_slice(&text).ok()?;
        Pid::from_raw(i32::try_from(value["pid"].as_i64()?).ok()?)
    }

    /// Runs a zarrfs command with JSON output; `None` if it reports that there are no changes at the path.
    fn ask(&self, arguments: &[&str]) -> Tried<Option<Value>> {
        let dir = self.dir();
        let mut all: Vec<&OsStr> = vec![arguments[0].as_ref(), dir.as_os_str()];
        all.extend(arguments[1..].iter().map(OsStr::new));
        let output = self.zarrfs(&all);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0 | 1) => Ok(Some(
                serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
            )),
            _ if said.contains("no changes at this path") => Ok(None),
            _ => Err(Failure {
                why: said,
                ..Failure::new(arguments[0], libc::EIO)
            }),
        }
    }
}

fn names(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|pair| pair[0].as_str().map(str::to_string))
        .collect()
}

struct HeldFile(File);

impl Held for HeldFile {
    fn read(&self, _context: &RequestContext) -> Tried<Vec<u8>> {
        let read = || {
            let mut bytes = Vec::new();
            let mut piece = vec![0; 3000];
            loop {
                match self.0.read_at(&mut piece, bytes.len() as u64)? {
                    0 => return Ok(bytes),
                    length => bytes.extend_from_slice(&piece[..length]),
                }
            }
        };
        read().map_err(failed("read"))
    }
}

impl World for MountPoint {
    fn replace(
        &self,
        _context: &RequestContext,
        path: &str,
        temporary: &str,
        bytes: &[u8],
        synced: bool,
    ) -> Tried<()> {
        let temporary = self.path(temporary);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let file = options.open(&temporary).map_err(failed("create"))?;
        file.write_all_at(bytes, 0).map_err(failed("write"))?;
        if synced {
            file.sync_all().map_err(failed("fsync"))?;
        }
        calls::close(file).map_err(failed("close"))?;
        when_closed(|| fs::rename(&temporary, self.path(path))).map_err(failed("rename"))
    }

    fn overwrite(
        &self,
        _context: &RequestContext,
        path: &str,
        bytes: &[u8],
        how: InPlace,
    ) -> Tried<()> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        options.truncate(how == InPlace::Emptied);
        let file = options.open(self.path(path)).map_err(failed("open"))?;
        let middle = bytes.len() / 2;
        let write = || match how {
            InPlace::Mapped => {
                file.set_len(bytes.len() as u64)?;
                calls::write_mapped(&file, bytes)
            }
            _ => {
                file.write_all_at(&bytes[..middle], 0)?;
                file.write_all_at(&bytes[middle..], middle as u64)?;
                file.set_len(bytes.len() as u64)
            }
        };
        write().map_err(failed("write"))?;
        calls::close(file).map_err(failed("close"))
    }

    fn append(&self, _context: &RequestContext, path: &str, bytes: &[u8]) -> Tried<()> {
        let mut options = OpenOptions::new();
        let file = options.append(true).open(self.path(path));
        let mut file = file.map_err(failed("open"))?;
        std::io::Write::write_all(&mut file, bytes).map_err(failed("write"))?;
        calls::close(file).map_err(failed("close"))
    }

    fn truncate(&self, _context: &RequestContext, path: &str, length: u64) -> Tried<()> {
        rustix::fs::open(
            self.path(path),
            rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .and_then(|file| {
            rustix::fs::ftruncate(&file, length)?;
            Ok(File::from(file))
        })
        .map_err(std::io::Error::from)
        .and_then(calls::close)
        .map_err(failed("truncate"))
    }

    fn remove(&self, _context: &RequestContext, path: &str) -> Tried<()> {
        when_closed(|| fs::remove_file(self.path(path))).map_err(failed("unlink"))
    }

    fn rename(&self, _context: &RequestContext, from: &str, to: &str) -> Tried<()> {
        fs::rename(self.path(from), self.path(to)).map_err(failed("rename"))
    }

    fn read(&self, _context: &RequestContext, path: &str) -> Tried<Option<Vec<u8>>> {
        let Some(mut file) = found(File::open(self.path(path)).map_err(failed("open")))? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed("read"))?;
        Ok(Some(bytes))
    }

    fn length(&self, _context: &RequestContext, path: &str) -> Tried<Option<u64>> {
        let found = found(fs::metadata(self.path(path)).map_err(failed("stat")))?;
        Ok(found.map(|found| found.len()))
    }

    fn names(&self, _context: &RequestContext, folder: &str) -> Tried<Vec<String>> {
        let list = || {
            let entries = fs::read_dir(self.path(folder))?;
            let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
            names.collect::<std::io::Result<Vec<String>>>()
        };
        Ok(found(list().map_err(failed("list")))?.unwrap_or_default())
    }

    fn hold(&self, _context: &RequestContext, path: &str) -> Tried<Option<Box<dyn Held>>> {
        let opened = found(File::open(self.path(path)).map_err(failed("open")))?;
        Ok(opened.map(|file| Box::new(HeldFile(file)) as Box<dyn Held>))
    }

    fn read_decoded(&self, array: &str, chunk: u64) -> Tried<Vec<u8>> {
        let path = format!(".zarrfs/files/{array}/{array}.raw");
        let file = File::open(self.path(&path)).map_err(failed("open"))?;
        let mut bytes = vec![0; CHUNK];
        let read = file.read_exact_at(&mut bytes, chunk * CHUNK as u64);
        read.map_err(failed("read"))?;
        Ok(bytes)
    }

    fn write_decoded(&self, array: &str, chunk: u64, bytes: &[u8]) -> Tried<()> {
        let path = format!(".zarrfs/files/{array}/{array}.raw");
        let file = when_closed(|| OpenOptions::new().write(true).open(self.path(&path)));
        let file = file.map_err(failed("open"))?;
        let written = file.write_all_at(bytes, chunk * CHUNK as u64);
        written.map_err(failed("write"))?;
        calls::close(file).map_err(failed("close"))
    }

    fn commit(&self, _context: &RequestContext) -> Tried<Committed> {
        if self.is_plain {
            return Ok(Committed::default());
        }
        let said = self.ask(&["commit", "--json"])?.unwrap_or(Value::Null);
        if !said.is_object() {
            return Err(Failure::new("commit without an answer", libc::EIO));
        }
        Ok(Committed {
            conflicts: names(&said["conflicts"]),
            kept: names(&said["kept"]),
        })
    }

    fn discard(&self, _context: &RequestContext, path: &str) -> Tried<bool> {
        Ok(self.ask(&["discard", path])?.is_some())
    }

    /// Kills the daemon, unmounts the directory, and mounts the store again with the same upper folder.
    fn kill(&self) {
        let daemon = self.daemon().expect("the mount tells its process");
        process::kill_process(daemon, Signal::KILL).unwrap();
        let end = Instant::now() + COMES_BACK;
        let mut last = None;
        while Instant::now() < end {
            // The unmount has to be forced: a daemon that is killed while it invalidates pages waits in the kernel for
            // a read that nobody answers any more.
            let _ = Command::new("umount")
                .args(["-f", "-l"])
                .arg(self.dir())
                .output();
            let output = self.try_mount();
            if output.status.success() {
                return;
            }
            // The lock of the upper folder is released only when the last thread of the killed daemon has ended.
            last = Some(output);
            thread::sleep(Duration::from_millis(10));
        }
        panic!("it cannot be mounted again: {last:?}");
    }

    fn server(&self) -> Option<u32> {
        if self.is_plain {
            return Some(0);
        }
        let daemon = self.daemon()?;
        u32::try_from(daemon.as_raw_nonzero().get()).ok()
    }

    /// Returns the files in the upper folder that should be gone after a commit: not the permanent files, nor the files
    /// that were incomplete when the daemon was killed.
    fn left_over(&self, _context: &RequestContext) -> Vec<String> {
        if self.is_plain {
            return Vec::new();
        }
        self.wait_for_removals();
        let mut left = Vec::new();
        let mut folders = vec![self.upper()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                let is_own = ["README", "zarrfs.json", "lock", "socket"].contains(&name.as_str());
                if path.is_dir() && name != "rescued" {
                    folders.push(path);
                } else if path.is_file() && !is_own && !name.starts_with("journal") {
                    left.push(path.to_string_lossy().into_owned());
                }
            }
        }
        let status = self
            .ask(&["status", "--json"])
            .unwrap()
            .unwrap_or(Value::Null);
        let count = |name: &str| status[name].as_u64().unwrap_or(u64::MAX);
        if count("put") + count("erased") > 0 {
            left.push(status.to_string());
        }
        left
    }

    fn has_decoded(&self) -> bool {
        !self.is_plain
    }
}
