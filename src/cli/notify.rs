//! Notifies systemd of READY=1 and STOPPING=1, on the socket NOTIFY_SOCKET: see sd_notify(3).

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// Sends `state` if there is a socket; a failure is only logged, since the mount works without it.
pub(super) fn send(state: &str) {
    let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return;
    };
    if let Err(error) = send_to(name.as_bytes(), Path::new(&name), state) {
        log::warn!("NOTIFY_SOCKET: {error}");
    }
}

/// A name that begins with `@` is in the abstract namespace.
fn send_to(name: &[u8], path: &Path, state: &str) -> io::Result<()> {
    let address = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}
