//! What the cache holds, written where every process reads it: the content of its lock file.
//!
//! The number is never less than what is there. It is marked before the folder is changed and the mark is
//! taken away afterwards, so that after a death in between, or a start of the machine, it is counted anew.
//! Only who holds the lock may call anything here.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const MAGIC: &[u8; 8] = b"zarrfsL\x01";

/// Magic, bytes held, mark, start of the machine, checksum.
const LENGTH: usize = 36;

/// The account of a cache.
pub(super) struct UsageFile {
    file: File,
    /// Which start of the machine this is; files of an earlier one may be lost or torn.
    boot: u64,
}

impl UsageFile {
    /// Builds the account that a lock file has.
    pub(super) fn new(file: File) -> UsageFile {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        UsageFile {
            file,
            boot: crate::store::Version::of(&boot).0,
        }
    }

    /// Returns the lock file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the bytes held; nothing if that has to be counted.
    pub(super) fn held(&self) -> Option<u64> {
        let mut text = [0; LENGTH];
        self.file.read_exact_at(&mut text, 0).ok()?;
        let (record, sum) = text.split_at(LENGTH - 4);
        let number = |place: usize| {
            let eight = record.get(place..place + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(eight))
        };
        let is_whole = record.starts_with(MAGIC) && crc32c::crc32c(record).to_le_bytes() == sum;
        let is_settled = number(16) == Some(0) && number(24) == Some(self.boot);
        number(8).filter(|_| is_whole && is_settled)
    }

    /// Writes down the bytes held; `settled` if the folder is not about to change.
    pub(super) fn write(&self, held: u64, settled: bool) -> io::Result<()> {
        let mut record = MAGIC.to_vec();
        for number in [held, u64::from(!settled), self.boot] {
            record.extend_from_slice(&number.to_le_bytes());
        }
        let sum = crc32c::crc32c(&record);
        record.extend_from_slice(&sum.to_le_bytes());
        self.file.write_all_at(&record, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_settled_record_of_this_start_counts() {
        let mut ledger = UsageFile::new(tempfile::tempfile().unwrap());
        assert_eq!(ledger.held(), None);
        ledger.write(5, true).unwrap();
        assert_eq!(ledger.held(), Some(5));
        ledger.write(6, false).unwrap();
        assert_eq!(ledger.held(), None);
        ledger.write(7, true).unwrap();
        ledger.file().write_all_at(b"x", 9).unwrap();
        assert_eq!(ledger.held(), None);
        ledger.write(7, true).unwrap();
        ledger.boot ^= 1;
        assert_eq!(ledger.held(), None);
    }
}
