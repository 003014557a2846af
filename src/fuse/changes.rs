//! The requests that change something, and those about what only changing mounts keep: what each asks of the vfs
//! and how its answer is put.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{
    Errno, FileHandle, Generation, ReplyAttr, ReplyCreate, ReplyEmpty, ReplyEntry, ReplyStatfs,
    ReplyWrite, ReplyXattr,
};

use super::request::{Request, RequestPool};
use super::{FuseAdapter, convert};
use crate::error::Result;
use crate::store::tree::{AttrChange, Credentials, FreeSpace, Setting};
use crate::vfs::{Entry, Fh, Ino, NewNode, OpenReply, Vfs};
use crate::view::Attr;

/// A change whose only answer is that it was made.
pub(super) struct UnitRequest<W> {
    pub(super) name: &'static str,
    pub(super) ino: Ino,
    pub(super) queue: RequestPool,
    pub(super) work: W,
}

impl<W> Request for UnitRequest<W>
where
    W: Fn(&Vfs) -> Result<()> + Send + 'static,
{
    type Reply = ReplyEmpty;
    type Found = ();

    fn name(&self) -> &'static str {
        self.name
    }

    fn queue(&self) -> RequestPool {
        self.queue
    }

    fn is_limited(&self) -> bool {
        self.queue == RequestPool::Names
    }

    fn inode(&self) -> u64 {
        self.ino.0
    }

    fn later(&self, vfs: &Vfs) -> Result<()> {
        (self.work)(vfs)
    }

    fn answer(self, (): (), reply: ReplyEmpty, _vfs: &Vfs) {
        reply.ok();
    }
}

/// A change that makes something with a name.
pub(super) struct EntryRequest<W> {
    pub(super) name: &'static str,
    pub(super) parent: Ino,
    pub(super) work: W,
}

impl<W> Request for EntryRequest<W>
where
    W: Fn(&Vfs) -> Result<Entry> + Send + 'static,
{
    type Reply = ReplyEntry;
    type Found = Entry;

    fn name(&self) -> &'static str {
        self.name
    }

    fn inode(&self) -> u64 {
        self.parent.0
    }

    fn later(&self, vfs: &Vfs) -> Result<Entry> {
        (self.work)(vfs)
    }

    fn answer(self, found: Entry, reply: ReplyEntry, vfs: &Vfs) {
        let Entry { ino, attr } = found;
        let shown = convert::file_attr(ino, &attr, vfs.config());
        reply.entry(&attr.fresh, &shown, Generation(0));
    }

    fn discard(self, found: Entry, vfs: &Vfs) {
        vfs.forget(found.ino, 1);
    }
}

pub(super) struct Create {
    pub(super) parent: Ino,
    pub(super) name: Vec<u8>,
    pub(super) maker: Credentials,
}

impl Request for Create {
    type Reply = ReplyCreate;
    type Found = (Entry, OpenReply);

    fn name(&self) -> &'static str {
        "create"
    }

    fn inode(&self) -> u64 {
        self.parent.0
    }

    fn later(&self, vfs: &Vfs) -> Result<(Entry, OpenReply)> {
        vfs.create(self.parent, &self.name, &self.maker)
    }

    fn answer(self, (entry, opened): (Entry, OpenReply), reply: ReplyCreate, vfs: &Vfs) {
        reply.created(
            &entry.attr.fresh,
            &convert::file_attr(entry.ino, &entry.attr, vfs.config()),
            Generation(0),
            FileHandle(opened.fh.0),
            convert::open_flags(&opened),
        );
    }

    fn discard(self, (entry, opened): (Entry, OpenReply), vfs: &Vfs) {
        vfs.release(opened.fh);
        vfs.forget(entry.ino, 1);
    }
}

pub(super) struct SetAttr {
    pub(super) ino: Ino,
    pub(super) fh: Option<Fh>,
    pub(super) change: AttrChange,
}

impl Request for SetAttr {
    type Reply = ReplyAttr;
    type Found = Attr;

    fn name(&self) -> &'static str {
        "setattr"
    }

    fn inode(&self) -> u64 {
        self.ino.0
    }

    fn later(&self, vfs: &Vfs) -> Result<Attr> {
        vfs.set_attributes(self.ino, self.fh, &self.change)
    }

    fn answer(self, found: Attr, reply: ReplyAttr, vfs: &Vfs) {
        let shown = convert::file_attr(self.ino, &found, vfs.config());
        reply.attr(&found.fresh, &shown);
    }
}

pub(super) struct Write {
    pub(super) ino: Ino,
    pub(super) fh: Fh,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

impl Request for Write {
    type Reply = ReplyWrite;
    type Found = ();

    fn name(&self) -> &'static str {
        "write"
    }

    fn queue(&self) -> RequestPool {
        RequestPool::Reads
    }

    fn inode(&self) -> u64 {
        self.ino.0
    }

    fn later(&self, vfs: &Vfs) -> Result<()> {
        vfs.write(self.fh, self.offset, &self.bytes)
    }

    fn answer(self, (): (), reply: ReplyWrite, _vfs: &Vfs) {
        // A request has at most a megabyte.
        reply.written(self.bytes.len() as u32);
    }
}

/// The value of an extended attribute, or the names of all.
pub(super) struct XattrRequest<W> {
    pub(super) ino: Ino,
    /// How long an answer may be; 0 asks for its length.
    pub(super) size: u32,
    pub(super) work: W,
}

impl<W> Request for XattrRequest<W>
where
    W: Fn(&Vfs) -> Result<Vec<u8>> + Send + 'static,
{
    type Reply = ReplyXattr;
    type Found = Vec<u8>;

    fn name(&self) -> &'static str {
        "getxattr"
    }

    fn inode(&self) -> u64 {
        self.ino.0
    }

    fn later(&self, vfs: &Vfs) -> Result<Vec<u8>> {
        (self.work)(vfs)
    }

    fn answer(self, found: Vec<u8>, reply: ReplyXattr, _vfs: &Vfs) {
        // No value is longer than 64 KiB.
        match u32::try_from(found.len()).unwrap_or(u32::MAX) {
            length if self.size == 0 => reply.size(length),
            length if length > self.size => reply.error(fuser::Errno::ERANGE),
            _ => reply.data(&found),
        }
    }
}

pub(super) struct StatFs;

/// What `df` shows of a mount that cannot be written: a petabyte in blocks of a page, none of it free.
const READ_ONLY: FreeSpace = FreeSpace {
    block: 4096,
    blocks: 1 << 38,
    free: 0,
    available: 0,
    files: 1 << 32,
    free_files: 0,
};

const LONGEST_NAME: u32 = 255;

impl Request for StatFs {
    type Reply = ReplyStatfs;
    type Found = FreeSpace;

    fn name(&self) -> &'static str {
        "statfs"
    }

    fn inode(&self) -> u64 {
        Ino::ROOT.0
    }

    fn later(&self, vfs: &Vfs) -> Result<FreeSpace> {
        Ok(vfs.room()?.unwrap_or(READ_ONLY))
    }

    fn answer(self, room: FreeSpace, reply: ReplyStatfs, _vfs: &Vfs) {
        reply.statfs(
            room.blocks,
            room.free,
            room.available,
            room.files,
            room.free_files,
            room.block,
            LONGEST_NAME,
            room.block,
        );
    }
}

impl FuseAdapter {
    fn plain<W>(&self, name: &'static str, ino: Ino, queue: RequestPool, work: W, reply: ReplyEmpty)
    where
        W: Fn(&Vfs) -> Result<()> + Send + 'static,
    {
        let request = UnitRequest {
            name,
            ino,
            queue,
            work,
        };
        self.op(request, reply);
    }

    /// Makes a change of names or attributes.
    pub(super) fn change(
        &self,
        name: &'static str,
        ino: Ino,
        reply: ReplyEmpty,
        work: impl Fn(&Vfs) -> Result<()> + Send + 'static,
    ) {
        self.plain(name, ino, RequestPool::Names, work, reply);
    }

    /// Like `change`, for what may take as long as the content is.
    pub(super) fn keep(
        &self,
        name: &'static str,
        ino: Ino,
        reply: ReplyEmpty,
        work: impl Fn(&Vfs) -> Result<()> + Send + 'static,
    ) {
        self.plain(name, ino, RequestPool::Reads, work, reply);
    }

    pub(super) fn make(
        &self,
        name: &'static str,
        parent: Ino,
        new: &OsStr,
        node: NewNode,
        maker: Credentials,
        reply: ReplyEntry,
    ) {
        let new = new.as_bytes().to_vec();
        let request = EntryRequest {
            name,
            parent,
            work: move |vfs: &Vfs| vfs.make(parent, &new, &node, &maker),
        };
        self.op(request, reply);
    }

    pub(super) fn set_attribute(
        &self,
        ino: Ino,
        name: &OsStr,
        value: Option<Vec<u8>>,
        setting: Setting,
        reply: ReplyEmpty,
    ) {
        if self.is_writable() && (name == CAPABILITY || !is_kept(name)) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let name = name.as_bytes().to_vec();
        self.change("setxattr", ino, reply, move |vfs| {
            vfs.set_attribute(ino, &name, value.as_deref(), setting)
        });
    }
}

/// What a program may do beyond its owner: nothing on a mount that is `nosuid`.
pub(super) const CAPABILITY: &str = "security.capability";

/// Whether an extended attribute is kept; access lists would not be held to.
pub(super) fn is_kept(name: &OsStr) -> bool {
    !name.as_bytes().starts_with(b"system.")
}
