//! Finds the data between the holes of a sparse file.

use std::fs::File;
use std::ops::Range;

use rustix::fs::SeekFrom;
use rustix::io;
use rustix::io::Errno;

/// Returns the next range with data between `offset` and `end`, or `None` if the file only has a hole there.
pub fn next_data(file: &File, offset: u64, end: u64) -> io::Result<Option<Range<u64>>> {
    if offset >= end {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Err(Errno::NXIO) => return Ok(None),
        // If the file system does not support holes, everything counts as data.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY) => return Ok(Some(offset..end)),
        start => start?,
    };
    if start >= end {
        return Ok(None);
    }
    let hole = rustix::fs::seek(file, SeekFrom::Hole(start))?;
    Ok(Some(start..hole.min(end)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn data_between_holes_are_found() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 << 20).unwrap();
        assert_eq!(next_data(&file, 0, 16 << 20), Ok(None));
        file.write_all_at(b"data", 8 << 20).unwrap();
        let data = next_data(&file, 0, 16 << 20).unwrap().unwrap();
        assert!(data.start <= 8 << 20 && data.end >= (8 << 20) + 4);
        assert!(data.end - data.start < 4 << 20, "{data:?}");
        assert_eq!(next_data(&file, data.end, 16 << 20), Ok(None));
        assert_eq!(next_data(&file, 0, data.start), Ok(None));
    }
}
