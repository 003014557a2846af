//! Mounts as an ordinary user: the set-user-id program fusermount3 mounts and passes the device.
//!
//! The device arrives over a socket, which is the standard input of fusermount3, so that no descriptor has to be
//! inherited by number. The stderr of fusermount3 becomes a warning or the error.

use std::io;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::net;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use super::{DEVICE, HINT, MountRequest, missing_device};
use zarr_format::error::{Error, Kind, Result};

const PROGRAM: &str = "fusermount3";

/// Mounts with fusermount3 and returns the FUSE device; fails with `Denied` and the message of fusermount3.
pub(super) fn mount(request: &MountRequest) -> Result<OwnedFd> {
    if !Path::new(DEVICE).exists() {
        return Err(missing_device());
    }
    let failed = |error: io::Error| Error::os(PROGRAM, error);
    let (ours, theirs) = socket_pair().map_err(|error| failed(error.into()))?;
    let child = start(request, theirs)?;
    let device = receive(&ours);
    let end = child.wait_with_output().map_err(failed)?;
    let message = message(&end.stderr);
    match device.map_err(|error| failed(error.into()))? {
        Some(device) if end.status.success() => {
            if !message.is_empty() {
                log::warn!("{message}");
            }
            Ok(device)
        }
        _ => Err(refused(&request.path, with_hint(message))),
    }
}

fn socket_pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    net::socketpair(family, kind, SocketFlags::CLOEXEC, None)
}

/// Starts fusermount3, which sends the FUSE device over `socket`.
fn start(request: &MountRequest, socket: OwnedFd) -> Result<Child> {
    let program = find()?;
    Command::new(&program)
        .arg("-o")
        .arg(options(request))
        .arg("--")
        .arg(&request.path)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Error::os(program.display(), error))
}

/// Detaches the mount at `path` with fusermount3.
pub(super) fn unmount(path: &Path) -> Result<()> {
    let program = find()?;
    let end = Command::new(&program)
        .args(["-u", "-z", "--"])
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::os(program.display(), error))?;
    if end.status.success() {
        return Ok(());
    }
    let mut why = message(&end.stderr);
    // The mount is in the kernel's mount table, so fusermount3 refuses it because it belongs to another user.
    if why.contains("not found in /etc/mtab") {
        why = "mounted by another user; unmount it as that user or as root".to_string();
    }
    Err(refused(path, why))
}

/// Returns the stderr of fusermount3 as one line.
fn message(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    text.trim().replace('\n', "; ")
}

/// Appends a hint to a message about missing permissions; other messages need none.
fn with_hint(message: String) -> String {
    if message.contains("/dev/fuse: Permission denied") {
        return format!("{message}; run 'chmod 666 {DEVICE}' as root; {HINT}");
    }
    let faults = ["Operation not permitted", "Permission denied"];
    if faults.iter().any(|fault| message.contains(fault)) {
        format!("{message}; {HINT}")
    } else {
        message
    }
}

fn refused(path: &Path, mut message: String) -> Error {
    if message.is_empty() {
        message = format!("{PROGRAM} failed without a message");
    }
    Error::new(Kind::Denied, path.display(), message)
}

fn find() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // systemd sets no PATH for mount units.
    let usual = ["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from);
    let folders = std::env::split_paths(&path).chain(usual);
    let mut paths = folders
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(PROGRAM));
    paths.find(|path| path.is_file()).ok_or_else(|| {
        let detail = format!("not found; install the package fuse3, or mount as root; {HINT}");
        Error::new(Kind::NotFound, PROGRAM, detail)
    })
}

/// Returns the value of fusermount3's -o option. A comma or backslash in the source is escaped, since a comma would end
/// the source.
fn options(request: &MountRequest) -> String {
    let source = request.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut options = format!("fsname={source},subtype=zarrfs,nosuid,nodev,default_permissions");
    let flags = request.flags;
    let options_by_name = [
        ("ro", flags.read_only),
        ("noexec", flags.noexec),
        ("noatime", flags.noatime),
        ("sync", flags.sync),
        ("dirsync", flags.dirsync),
        ("allow_other", request.allow_other),
    ];
    for (name, _) in options_by_name.iter().filter(|(_, is_set)| *is_set) {
        options.push(',');
        options.push_str(name);
    }
    options
}

/// Returns the descriptor that arrives over `socket`, or `None` if the other end closes the socket first.
fn receive(socket: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let mut data = [IoSliceMut::new(&mut byte)];
        match net::recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    Ok(descriptors.next().and_then(|mut rights| rights.next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_the_source_add_no_mount_options() {
        let request = MountRequest {
            source: "s3://b/a,dev\\".to_string(),
            ..MountRequest::default()
        };
        assert!(
            options(&request).starts_with("fsname=s3://b/a\\,dev\\\\,subtype=zarrfs,nosuid,nodev")
        );
    }
}
