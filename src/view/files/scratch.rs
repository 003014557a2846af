//! A file in memory, which programs create next to `attributes.json` or in its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;

use zarr_format::error::{Error, Kind, Result};

/// Maximum size of a view's scratch files: four of the maximum length.
const MAX_BYTES: u64 = 64 << 20;

/// Total size of a view's scratch files in bytes.
#[derive(Default)]
pub(super) struct ScratchRoom(AtomicU64);

impl ScratchRoom {
    /// Reserves bytes; `NoSpace` above the maximum.
    fn take(&self, bytes: u64) -> Result<()> {
        let add = |held: u64| held.checked_add(bytes).filter(|all| *all <= MAX_BYTES);
        match self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, add)
        {
            Ok(_) => Ok(()),
            Err(held) => {
                let why = format!(
                    "files that are not stored take {held} bytes, and may take {MAX_BYTES}: remove some of them"
                );
                Err(Error::new(Kind::NoSpace, "", why))
            }
        }
    }

    fn give_back(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// The bytes of a file that is not stored.
pub(super) struct Scratch {
    content: Mutex<Content>,
    /// Whether the file was created in place of a document and was stored as the document.
    is_stored: AtomicBool,
    room: Arc<ScratchRoom>,
}

struct Content {
    bytes: Vec<u8>,
    modified: SystemTime,
}

impl Scratch {
    /// Builds a file with these bytes; `NoSpace` above the maximum.
    pub(super) fn new(room: &Arc<ScratchRoom>, bytes: Vec<u8>) -> Result<Arc<Scratch>> {
        room.take(bytes.len() as u64)?;
        Ok(Scratch::holding(room.clone(), bytes, SystemTime::now()))
    }

    /// Builds a handle's own copy of a document; it has its own reservation.
    pub(super) fn of_document(text: &[u8], modified: SystemTime) -> Arc<Scratch> {
        let room = ScratchRoom(AtomicU64::new(text.len() as u64));
        Scratch::holding(Arc::new(room), text.to_vec(), modified)
    }

    fn holding(room: Arc<ScratchRoom>, bytes: Vec<u8>, modified: SystemTime) -> Arc<Scratch> {
        Arc::new(Scratch {
            content: Mutex::new(Content { bytes, modified }),
            is_stored: AtomicBool::new(false),
            room,
        })
    }

    /// Returns the number that identifies the file.
    pub(super) fn number(self: &Arc<Self>) -> u64 {
        Arc::as_ptr(self).addr() as u64
    }

    /// Returns all bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.content.lock().bytes.clone()
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> u64 {
        self.content.lock().bytes.len() as u64
    }

    /// Returns the time of the last write, or the time that a program has set.
    pub(super) fn modified(&self) -> SystemTime {
        self.content.lock().modified
    }

    /// Sets the modification time.
    pub(super) fn set_modified(&self, modified: SystemTime) {
        self.content.lock().modified = modified;
    }

    /// Returns up to `len` bytes at `offset`; fewer only at the end of the file.
    pub(super) fn read_at(&self, offset: u64, len: usize) -> Vec<u8> {
        let content = self.content.lock();
        let bytes = &content.bytes;
        let start = usize::try_from(offset).map_or(bytes.len(), |start| start.min(bytes.len()));
        let end = start.saturating_add(len).min(bytes.len());
        bytes.get(start..end).unwrap_or_default().to_vec()
    }

    /// Writes bytes that end at `end`; a gap before them is filled with zeros.
    pub(super) fn write(&self, end: usize, new: &[u8]) -> Result<()> {
        let mut content = self.content.lock();
        if content.bytes.len() < end {
            self.set_length(&mut content, end)?;
        }
        content.bytes[end - new.len()..end].copy_from_slice(new);
        content.modified = SystemTime::now();
        Ok(())
    }

    /// Truncates the file, or extends it with zeros.
    pub(super) fn resize(&self, length: usize) -> Result<()> {
        let mut content = self.content.lock();
        self.set_length(&mut content, length)?;
        content.modified = SystemTime::now();
        Ok(())
    }

    fn set_length(&self, content: &mut Content, length: usize) -> Result<()> {
        let old = content.bytes.len() as u64;
        let new = length as u64;
        if new > old {
            self.room.take(new - old)?;
        }
        content.bytes.resize(length, 0);
        if new < old {
            content.bytes.shrink_to_fit();
            self.room.give_back(old - new);
        }
        Ok(())
    }

    /// Whether the bytes were stored as the document that the file replaces.
    pub(super) fn is_stored(&self) -> bool {
        self.is_stored.load(Ordering::Acquire)
    }

    /// Records that the bytes were stored as the document.
    pub(super) fn note_stored(&self) {
        self.is_stored.store(true, Ordering::Release);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.room.give_back(self.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_files_take_a_bounded_number_of_bytes() {
        let room = Arc::<ScratchRoom>::default();
        let whole = usize::try_from(MAX_BYTES).unwrap();
        let file = Scratch::new(&room, b"ab".to_vec()).unwrap();
        file.resize(whole).unwrap();
        let error = file.write(whole + 1, b"c").unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace);
        assert_eq!(file.len(), MAX_BYTES);
        assert!(Scratch::new(&room, b"c".to_vec()).is_err());
        file.resize(1).unwrap();
        assert_eq!(file.read_at(0, 10), b"a");
        file.write(3, b"c").unwrap();
        assert_eq!(file.bytes(), b"a\0c");
        drop(file);
        assert_eq!(room.0.load(Ordering::Relaxed), 0);
    }
}
