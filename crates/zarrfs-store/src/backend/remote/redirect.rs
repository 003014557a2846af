//! Refuses redirects from a public host to this machine or a private network.
//!
//! A server on the internet must not choose requests inside the network. A private host may redirect within its
//! network. A name is judged by its addresses at the time of the redirect. The client resolves it again, so a change of
//! the addresses in between goes unnoticed.

use std::net::{IpAddr, Ipv6Addr, ToSocketAddrs};

use reqwest::redirect::Policy;
use tokio::runtime::{Handle, RuntimeFlavor};
use url::Url;

/// Returns the redirect policy of the client.
pub(super) fn policy() -> Policy {
    Policy::custom(|attempt| {
        let refused = match attempt.previous() {
            [] => None,
            hops if hops.len() > 10 => Some("too many redirects".to_string()),
            [first, ..] => refusal(first, attempt.url(), resolves_inside),
        };
        match refused {
            None => attempt.follow(),
            Some(text) => {
                let kind = std::io::ErrorKind::PermissionDenied;
                attempt.error(std::io::Error::new(kind, text))
            }
        }
    })
}

/// Returns the reason why a redirect is refused, or `None` if it is followed. `resolves_inside` resolves a host name.
fn refusal(first: &Url, target: &Url, resolves_inside: impl Fn(&str) -> bool) -> Option<String> {
    let (from, to) = (first.host_str()?, target.host_str()?);
    let is_private = |host: &str| is_inside(host) || resolves_inside(host);
    if from == to || !is_private(to) || is_private(from) {
        return None;
    }
    Some(format!(
        "the server redirects to {to}, a private address, which zarrfs does not follow"
    ))
}

/// Whether a host is given as an address of this machine or of a private network.
fn is_inside(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => is_private(address),
        Err(_) => {
            let name = bare.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

/// Whether a host name resolves to a private address. If a name has no address, the client will report that.
fn resolves_inside(host: &str) -> bool {
    let find = || {
        let addresses = (host, 0).to_socket_addrs();
        addresses.is_ok_and(|mut all| all.any(|address| is_private(address.ip())))
    };
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(find),
        Ok(_) | Err(_) => find(),
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            // 100.64.0.0/10 is the shared address space of providers (RFC 6598).
            let is_shared = first == 100 && (64..128).contains(&second);
            v4.is_loopback() || v4.is_private() || v4.is_link_local() || first == 0 || is_shared
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_private(IpAddr::V4(v4)),
            None => is_private_v6(v6),
        },
    }
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let first = address.segments()[0];
    // Unique local and link-local addresses (RFC 4193, RFC 4291).
    let is_local = first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80;
    address.is_loopback() || address.is_unspecified() || is_local
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirected(from: &str, to: &str) -> Option<String> {
        let resolves_inside = |host: &str| host.ends_with(".inside.example");
        refusal(
            &from.parse().unwrap(),
            &to.parse().unwrap(),
            resolves_inside,
        )
    }

    #[test]
    fn a_name_that_leads_inside_is_not_followed() {
        let inside = "http://files.inside.example/a";
        for public in ["https://93.184.216.34/a", "https://data.example/a"] {
            let why = redirected(public, inside).unwrap();
            assert!(
                why.contains("files.inside.example, a private address"),
                "{why}"
            );
            assert_eq!(redirected(inside, public), None);
        }
        assert_eq!(redirected("http://other.inside.example/a", inside), None);
        assert!(resolves_inside("localhost"));
        assert!(!resolves_inside("name-without-an-address.invalid"));
    }

    #[test]
    fn a_public_host_does_not_lead_inside() {
        let public = "https://93.184.216.34/a";
        for inside in [
            "http://127.0.0.1:8080/a",
            "http://localhost/a",
            "http://10.1.2.3/a",
            "http://192.168.0.1/a",
            "http://169.254.169.254/latest",
            "http://[::1]/a",
            "http://[fd00::1]/a",
            "http://[::ffff:127.0.0.1]/a",
        ] {
            let why = redirected(public, inside).unwrap();
            assert!(why.contains("a private address"), "{why}");
            assert_eq!(redirected("http://127.0.0.1/a", inside), None);
            assert_eq!(redirected("http://localhost/a", inside), None);
        }
        for outside in [
            "https://93.184.216.35/a",
            "https://[2606:2800::1]/a",
            public,
        ] {
            assert_eq!(redirected(public, outside), None);
            assert_eq!(redirected("http://10.0.0.1/a", outside), None);
        }
    }
}
