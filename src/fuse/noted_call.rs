//! A call of the kernel that is under way, for the access log: when it began, its process and its subject.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::access_log::{AccessLog, AccessRecord};
use super::request::RequestInfo;
use crate::array;
use crate::store::Key;
use crate::vfs::{Ino, Vfs};

/// The access log of a mount, and the names of its inodes.
pub(super) struct MountAccess {
    pub(super) log: Arc<AccessLog>,
    pub(super) vfs: Arc<Vfs>,
}

impl MountAccess {
    /// Returns the path of an inode, or of a name in it.
    fn path(&self, ino: Ino, name: Option<&[u8]>) -> Option<Key> {
        let path = self.vfs.last_path(ino)?;
        match name {
            Some(name) => path.child(name).ok(),
            None => Some(path),
        }
    }
}

/// The process that asks, and what it asks about beside the inode.
pub(super) struct CallSubject {
    pub(super) pid: u32,
    /// The name in the inode's directory.
    pub(super) name: Option<Vec<u8>>,
    /// The new name, and its directory.
    pub(super) to: Option<(Ino, Vec<u8>)>,
    /// Offset and length in bytes.
    pub(super) range: Option<(u64, u64)>,
}

/// A call that goes to the access log when it is answered.
pub(super) struct NotedCall {
    log: Arc<MountAccess>,
    time: SystemTime,
    started: Instant,
    request: RequestInfo,
    subject: CallSubject,
}

impl NotedCall {
    /// Notes a call that begins now.
    pub(super) fn new(
        log: Arc<MountAccess>,
        request: RequestInfo,
        subject: CallSubject,
    ) -> NotedCall {
        NotedCall {
            log,
            time: SystemTime::now(),
            started: Instant::now(),
            request,
            subject,
        }
    }

    /// Forgets which chunks this thread has looked at: what comes now is of this call.
    pub(super) fn begin(&self) {
        array::take_touched();
    }

    /// Tells the log. From the thread that did the work it also tells of the chunks that this looked at; a request that
    /// was refused, because its time was up or before any work was done, has none.
    pub(super) fn done(self, errno: Option<i32>) {
        let touched = array::take_touched();
        let CallSubject {
            pid,
            name,
            to,
            range,
        } = self.subject;
        self.log.log.add(AccessRecord {
            time: self.time,
            pid,
            operation: self.request.name,
            path: self.log.path(self.request.ino, name.as_deref()),
            to: to.and_then(|(parent, name)| self.log.path(parent, Some(&name))),
            range,
            touched,
            duration: self.started.elapsed(),
            errno,
        });
    }
}
