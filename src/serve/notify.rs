//! What a service manager is told.

/// Tells systemd, where it asks for that by `NOTIFY_SOCKET`: `READY=1` or `STOPPING=1`.
pub fn notify(state: &str) {
    #[cfg(target_os = "linux")]
    if let Some(name) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(refused) = send(&name, state)
    {
        log::warn!("NOTIFY_SOCKET {name:?}: cannot send {state}: {refused}");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = state;
}

/// A name with `@` is no file but one of the kernel's own.
#[cfg(target_os = "linux")]
fn send(name: &std::ffi::OsStr, state: &str) -> std::io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let address = match name.as_bytes() {
        [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::*;

    #[test]
    fn both_kinds_of_sockets_hear_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let hidden = format!("graphsieve-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(hidden.as_bytes()).unwrap();
        let sockets = [UnixDatagram::bind(&path).unwrap(), UnixDatagram::bind_addr(&address).unwrap()];
        for (socket, name) in sockets.iter().zip([path.into_os_string(), format!("@{hidden}").into()]) {
            send(&name, "READY=1").unwrap();
            let mut heard = [0; 16];
            let length = socket.recv(&mut heard).unwrap();
            assert_eq!(&heard[..length], b"READY=1");
        }
        assert!(send("/no/such/socket".as_ref(), "READY=1").is_err());
    }
}
