//! A plain directory that performs the steps: the model of the overlay.
//!
//! It can also be a directory on a mount, where it makes the steps through the kernel.

use std::collections::BTreeMap;
use std::fs;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

use crate::overlay::steps::{SLOTS, Step};

/// The kind of a file, with its content.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Shown {
    Folder,
    File(Vec<u8>),
    Link(Vec<u8>),
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Shown::Folder => f.write_str("folder"),
            Shown::File(bytes) => {
                let start = &bytes[..bytes.len().min(24)];
                write!(f, "file of {}: {}", bytes.len(), start.escape_ascii())
            }
            Shown::Link(to) => write!(f, "link to {}", to.escape_ascii()),
        }
    }
}

pub(crate) type Tree = BTreeMap<String, Shown>;

pub(crate) struct Reference {
    pub(crate) root: PathBuf,
    pub(crate) open: [Option<File>; SLOTS],
}

impl Reference {
    pub(crate) fn new(root: &Path) -> Reference {
        Reference {
            root: root.to_path_buf(),
            open: Default::default(),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Whether all parents of a path are directories. If not, the kernel fails without a request to the file system.
    pub(crate) fn has_folder_for(&self, path: &str) -> bool {
        let mut folder = self.root.clone();
        let mut names: Vec<&str> = path.split('/').collect();
        names.pop();
        names.into_iter().all(|name| {
            folder.push(name);
            fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir())
        })
    }

    /// Whether a file can be created at a path, because no parent of it is something else than a folder.
    pub(crate) fn can_hold(&self, path: &str) -> bool {
        let above = path
            .match_indices('/')
            .map(|(end, _)| self.at(&path[..end]));
        above.into_iter().all(|folder| {
            let found = fs::symlink_metadata(folder);
            found.map_or(true, |found| found.is_dir())
        })
    }

    fn opened(&self, path: &str, options: &mut OpenOptions) -> io::Result<File> {
        let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let file = options.custom_flags(flags).open(self.at(path))?;
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::ErrorKind::IsADirectory.into())
        }
    }

    fn slot(&self, slot: usize) -> io::Result<&File> {
        let file = self.open[slot].as_ref();
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Makes one step on the directory. A step that only an overlay supports does nothing.
    pub(crate) fn take(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::Create(path, slot) => {
                let mut options = OpenOptions::new();
                let file = self.opened(path, options.read(true).write(true).create_new(true))?;
                self.open[*slot] = Some(file);
            }
            Step::Open(path, slot, empty) => {
                let mut options = OpenOptions::new();
                let file = self.opened(path, options.read(true).write(true).truncate(*empty))?;
                self.open[*slot] = Some(file);
            }
            Step::Write(slot, at, length, byte) => {
                self.slot(*slot)?.write_all_at(&vec![*byte; *length], *at)?;
            }
            Step::Append(slot, length, byte) => {
                let file = self.slot(*slot)?;
                let end = file.metadata()?.len();
                file.write_all_at(&vec![*byte; *length], end)?;
            }
            Step::Resize(slot, size) => self.slot(*slot)?.set_len(*size)?,
            Step::ResizePath(path, size) => {
                let mut options = OpenOptions::new();
                self.opened(path, options.write(true))?.set_len(*size)?;
            }
            Step::Flush(slot) | Step::Close(slot) if self.open[*slot].is_none() => {}
            Step::Flush(_) => {}
            Step::Sync(slot) => self.slot(*slot)?.sync_all()?,
            Step::Close(slot) => self.open[*slot] = None,
            _ => self.take_names(step)?,
        }
        Ok(())
    }

    fn take_names(&mut self, step: &Step) -> io::Result<()> {
        let rename = |from: &str, to: &str, flags| {
            let (from, to) = (self.at(from), self.at(to));
            rustix::fs::renameat_with(CWD, from, CWD, to, flags).map_err(io::Error::from)
        };
        match step {
            Step::Unlink(path) => fs::remove_file(self.at(path)),
            Step::MakeFolder(path) => fs::create_dir(self.at(path)),
            Step::RemoveFolder(path) => fs::remove_dir(self.at(path)),
            Step::Rename(from, to) => rename(from, to, RenameFlags::empty()),
            Step::RenameNew(from, to) => rename(from, to, RenameFlags::NOREPLACE),
            Step::Link(from, to) => link(&self.at(from), &self.at(to)),
            Step::Symlink(at, to) => std::os::unix::fs::symlink(to, self.at(at)),
            Step::Chmod(path, mode) => {
                if fs::symlink_metadata(self.at(path))?.is_symlink() {
                    Ok(())
                } else {
                    fs::set_permissions(self.at(path), PermissionsExt::from_mode(*mode))
                }
            }
            Step::Put(path, length, byte) => self.put(path, &vec![*byte; *length]),
            Step::Erase(path) => match fs::remove_file(self.at(path)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                done => done,
            },
            _ => Ok(()),
        }
    }

    fn put(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let at = self.at(path);
        fs::create_dir_all(at.parent().unwrap())?;
        let arriving = self.root.with_extension("arriving");
        fs::write(&arriving, bytes)?;
        fs::rename(arriving, at)
    }

    pub(crate) fn shown(&self) -> Tree {
        let mut tree = Tree::new();
        shown_below(&self.root, "", &mut tree);
        tree
    }

    pub(crate) fn held_open(&self) -> Vec<Option<Vec<u8>>> {
        let read = |file: &File| {
            let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        self.open
            .iter()
            .map(|open| open.as_ref().map(read))
            .collect()
    }

    /// Makes the directory's content equal to `tree`. Open files stay open.
    pub(crate) fn become_like(&self, tree: &Tree) {
        for entry in fs::read_dir(&self.root).unwrap() {
            let path = entry.unwrap().path();
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                fs::remove_dir_all(path).unwrap()
            } else {
                fs::remove_file(path).unwrap()
            }
        }
        for (path, shown) in tree {
            match shown {
                Shown::Folder => fs::create_dir_all(self.at(path)).unwrap(),
                Shown::File(bytes) => self.put(path, bytes).unwrap(),
                Shown::Link(to) => {
                    let to = String::from_utf8(to.clone()).unwrap();
                    std::os::unix::fs::symlink(to, self.at(path)).unwrap();
                }
            }
        }
    }

    /// Closes the open files that are the file at a path; returns their numbers.
    pub(crate) fn close_file_of(&mut self, path: &str) -> Vec<usize> {
        let inode = fs::symlink_metadata(self.at(path)).map(|found| found.ino());
        let is_open = |open: &Option<File>| {
            let own = open.as_ref().map(|file| file.metadata().unwrap().ino());
            own.is_some_and(|own| inode.as_ref().is_ok_and(|inode| *inode == own))
        };
        let slots: Vec<usize> = (0..SLOTS)
            .filter(|&slot| is_open(&self.open[slot]))
            .collect();
        slots.iter().for_each(|&slot| self.open[slot] = None);
        slots
    }
}

/// Creates a hard link as the overlay does, which is a copy of the file under the second name.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    fs::remove_file(to)?;
    if fs::symlink_metadata(from)?.is_symlink() {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    fs::copy(from, to).map(drop)
}

fn shown_below(folder: &Path, prefix: &str, tree: &mut Tree) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if prefix.is_empty() && name == ".zarrfs" {
            continue;
        }
        let path = match prefix {
            "" => name,
            prefix => format!("{prefix}/{name}"),
        };
        let kind = entry.file_type().unwrap();
        let shown = if kind.is_dir() {
            shown_below(&entry.path(), &path, tree);
            Shown::Folder
        } else if kind.is_symlink() {
            let to = fs::read_link(entry.path()).unwrap();
            Shown::Link(to.into_os_string().into_encoded_bytes())
        } else {
            Shown::File(fs::read(entry.path()).unwrap())
        };
        tree.insert(path, shown);
    }
}
