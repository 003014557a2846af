//! Redirections from a public host to this machine or a private network, whose answers are not given out: a server on
//! the internet must not choose what is read inside.
//!
//! The client follows redirections by itself, so this looks at where an answer came from. A host of the private network
//! may redirect within it.

use std::net::{IpAddr, Ipv6Addr, ToSocketAddrs};

use http::Uri;
use object_store::client::{HttpError, HttpErrorKind, HttpResponse};
use tower_http::follow_redirect::RequestUri;

/// Returns a response, or an error if a public host, that of `asked`, has redirected to one that is not public.
pub(super) async fn check(asked: &Uri, response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let Some(RequestUri(found)) = response.extensions().get() else {
        return Ok(response);
    };
    let (Some(from), Some(to)) = (asked.host(), found.host()) else {
        return Ok(response);
    };
    if from == to || !is_inside(to) || is_inside(from) || leads_inside(from.to_string()).await {
        return Ok(response);
    }
    let text = format!("the server redirects to {to}, which is not public");
    let refused = std::io::Error::new(std::io::ErrorKind::PermissionDenied, text);
    Err(HttpError::new(HttpErrorKind::Unknown, refused))
}

/// Whether the text of a host is an address of this machine or of a private network.
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

/// Whether the name of a host is that of an address inside.
async fn leads_inside(host: String) -> bool {
    let looked_up = tokio::task::spawn_blocking(move || {
        let found = (host.as_str(), 0).to_socket_addrs();
        found.is_ok_and(|mut found| found.any(|address| is_private(address.ip())))
    });
    looked_up.await.unwrap_or(false)
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            // 100.64.0.0/10 is what providers share (RFC 6598).
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
    // Unique local addresses, and those of one link (RFC 4193, RFC 4291).
    let is_local = first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80;
    address.is_loopback() || address.is_unspecified() || is_local
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::backend::remote::fault;
    use crate::store::backend::remote::runtime::wait;
    use std::time::Duration;

    /// Asks one URL, to which the answer comes from another.
    fn redirected(from: &str, to: &str) -> Result<(), String> {
        let found = RequestUri(to.parse().unwrap());
        let response = http::Response::builder().extension(found);
        let response = response.body(String::new().into()).unwrap();
        let asked = from.parse().unwrap();
        let (checked, _) = wait(Duration::from_secs(20), check(&asked, response)).unwrap();
        let checked = checked.unwrap().map(|_| ());
        checked.map_err(|error| fault::innermost(&error))
    }

    #[test]
    fn b13_a_public_host_does_not_lead_inside() {
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
            let error = redirected(public, inside).unwrap_err();
            assert!(error.contains("which is not public"), "{error}");
            redirected("http://127.0.0.1/a", inside).unwrap();
            redirected("http://localhost/a", inside).unwrap();
        }
        for outside in [
            "https://93.184.216.35/a",
            "https://[2606:2800::1]/a",
            public,
        ] {
            redirected(public, outside).unwrap();
            redirected("http://10.0.0.1/a", outside).unwrap();
        }
    }
}
