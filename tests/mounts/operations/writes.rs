//! Every change on a read-only mount fails with EROFS, from kernel or daemon.

use std::fs;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::time::SystemTime;

use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use rustix::io::Errno;

use crate::common::needs;
use crate::operations::fixture::{Fixture, PATIENT};
use crate::operations::mounted::{Mounted, UMASK, errno};

/// Tries to change files and directories of a mount. Returns the names of the operations and their results.
fn attempts(mount: &Mounted, folder: &str) -> Vec<(&'static str, io::Result<()>)> {
    let place = |name: &str| mount.path(folder).join(name);
    let is_files = folder.starts_with(".zarrfs/files");
    let document = ["zarr.json", "metadata.json"][usize::from(is_files)];
    let (file, new) = (place(document), place("new"));
    let with = |change: fn(&mut OpenOptions) -> &mut OpenOptions| {
        change(&mut OpenOptions::new()).open(&file).map(drop)
    };
    let times = fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    vec![
        ("write", with(|options| options.write(true))),
        (
            "read and write",
            with(|options| options.read(true).write(true)),
        ),
        ("append", with(|options| options.append(true))),
        (
            "truncate",
            with(|options| options.write(true).truncate(true)),
        ),
        ("create", File::create(&new).map(drop)),
        ("create over", fs::write(&file, "x")),
        ("mkdir", fs::create_dir(&new)),
        ("unlink", fs::remove_file(&file)),
        ("rmdir", fs::remove_dir(mount.path(folder))),
        ("rename", fs::rename(&file, &new)),
        (
            "rename a folder",
            fs::rename(mount.path(folder), place("../new")),
        ),
        ("link", fs::hard_link(&file, &new)),
        ("symlink", symlink(document, &new)),
        (
            "mknod",
            rustix::fs::mknodat(CWD, &new, FileType::Fifo, Mode::RUSR, 0).map_err(Into::into),
        ),
        (
            "chmod",
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)),
        ),
        ("chown", chown(&file, Some(1), Some(1))),
        ("times", File::open(&file).unwrap().set_times(times)),
    ]
}

#[test]
fn every_change_on_a_read_only_mount_is_refused() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::new();
    for read_only in [true, false] {
        let mount = Mounted::new(fixture.views.stored.clone(), PATIENT, read_only);
        for folder in ["plain", "deep/er/packed", ".zarrfs/files/plain"] {
            for (way, outcome) in attempts(&mount, folder) {
                let refused = outcome.map_err(errno);
                assert_eq!(
                    refused,
                    Err(Errno::ROFS.raw_os_error()),
                    "{way} in {folder}"
                );
            }
        }
        let file = mount.path("plain/zarr.json");
        let refused = [
            rustix::fs::setxattr(&file, "user.x", b"1", XattrFlags::empty()),
            rustix::fs::removexattr(&file, "user.x"),
        ];
        assert_eq!(refused, [Err(Errno::ROFS); 2]);
        let read = rustix::fs::getxattr(&file, "user.x", &mut [0; 10][..]);
        assert_eq!(read, Err(Errno::OPNOTSUPP));
    }
    assert!(!fixture.store().join("plain/new").exists());
}

#[test]
fn modes_on_a_read_only_mount_have_no_write_bits() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::new();
    let mount = Mounted::new(fixture.views.stored.clone(), PATIENT, false);
    for (path, mode) in [
        ("", 0o040555),
        ("deep/er", 0o040555),
        ("plain/zarr.json", 0o100444),
        (".zarrfs", 0o040555),
        (".zarrfs/stats.json", 0o100444),
        (".zarrfs/files/plain/plain.npy", 0o100444),
        (".zarrfs/files/plain/chunks", 0o040555),
    ] {
        let meta = fs::symlink_metadata(mount.path(path)).unwrap();
        assert_eq!(
            format!("{:o}", meta.mode()),
            format!("{:o}", mode & !UMASK),
            "{path}"
        );
        assert!(
            meta.is_dir() || meta.blocks() > 0,
            "{path} looks like a hole"
        );
    }
}
