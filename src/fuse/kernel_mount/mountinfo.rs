//! Reads the mount table `/proc/self/mountinfo`, see proc_pid_mountinfo(5).
//!
//! Reading it accesses no mounted file system, so it cannot block on a mount whose daemon is gone. Paths are bytes,
//! with the kernel's octal escapes decoded.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use zarr_format::error::{Error, Result};

/// The file system type of zarrfs mounts.
pub const TYPE: &str = "fuse.zarrfs";

/// The device number of a mounted file system: `st_dev` of its files, also the name of its FUSE connection and of its
/// bdi (/sys/class/bdi).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The major number: 0 for file systems without a block device, such as FUSE.
    pub major: u32,
    /// The minor number, which distinguishes mounts.
    pub minor: u32,
}

impl Device {
    /// Returns major and minor number in one, as `st_dev` of the file system's files has them.
    pub fn number(self) -> u64 {
        rustix::fs::makedev(self.major, self.minor)
    }
}

/// A mounted file system: a line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    id: u64,
    parent: u64,
    /// The device number of the file system.
    pub device: Device,
    /// The mountpoint.
    pub path: PathBuf,
    /// The file system type, such as `fuse.zarrfs`.
    pub kind: String,
    /// The source of the mount, the first argument of mount(2).
    pub source: OsString,
}

impl Mounted {
    /// Whether the mounted file system is zarrfs.
    pub fn is_ours(&self) -> bool {
        self.kind == TYPE
    }
}

/// Returns all mounts; `Unavailable` without `/proc`.
pub fn read() -> Result<Vec<Mounted>> {
    let path = "/proc/self/mountinfo";
    let table = fs::read(path).map_err(|error| Error::os(path, error))?;
    Ok(parse(&table))
}

/// Returns the topmost mount at `path`, or `None` if nothing is mounted there.
pub fn top_at(path: &Path) -> Result<Option<Mounted>> {
    Ok(top(read()?, path))
}

fn top(table: Vec<Mounted>, path: &Path) -> Option<Mounted> {
    let here: Vec<Mounted> = table
        .into_iter()
        .filter(|mounted| mounted.path == path)
        .collect();
    let is_covered = |mounted: &Mounted| here.iter().any(|other| other.parent == mounted.id);
    here.iter().find(|mounted| !is_covered(mounted)).cloned()
}

fn parse(table: &[u8]) -> Vec<Mounted> {
    table
        .split(|&byte| byte == b'\n')
        .filter_map(parse_line)
        .collect()
}

/// Parses a line such as `36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw`, in which a dash ends the optional
/// fields.
fn parse_line(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let device = Device {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    };
    let path = PathBuf::from(unescape(fields.nth(1)?));
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    Some(Mounted {
        id,
        parent,
        device,
        path,
        kind,
        source,
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Decodes octal escapes such as `\040`.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let escape = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let octal = escape.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
22 1 0:20 / /tmp/a\\040b rw,nosuid shared:1 master:2 - tmpfs tmpfs rw
90 22 0:51 / /tmp/a\\040b ro - fuse.zarrfs s3://b/x\\134y,z ro,user_id=0
23 1 0:21 / /tmp rw - tmpfs tmpfs rw
garbage
";

    #[test]
    fn the_topmost_mount_is_found_under_an_escaped_path() {
        let mounted = top(parse(LINES.as_bytes()), Path::new("/tmp/a b")).unwrap();
        assert!(mounted.is_ours());
        assert_eq!(
            mounted.device,
            Device {
                major: 0,
                minor: 51
            }
        );
        assert_eq!(mounted.source, "s3://b/x\\y,z");
    }

    #[test]
    fn no_mount_is_found_at_an_unmounted_path() {
        assert_eq!(parse(LINES.as_bytes()).len(), 3);
        assert_eq!(top(parse(LINES.as_bytes()), Path::new("/tmp/a")), None);
    }

    #[test]
    fn the_mount_table_of_this_machine_parses() {
        assert!(
            read()
                .unwrap()
                .iter()
                .any(|mounted| mounted.path == Path::new("/"))
        );
    }
}
